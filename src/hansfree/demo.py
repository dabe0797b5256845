"""The embedded default: train a small network on poisoned lesions, then find, unlearn and prove."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import nn

from hansfree._internal.progress import Progress, silent
from hansfree._internal.store import RunStore, open_run
from hansfree.api import complete
from hansfree.corrections import LatentCorrection, Match
from hansfree.corrections.training import FineTuning, Pretraining, pretrain
from hansfree.data import Artifact, ImageDataset, SyntheticLesions, insert_bias
from hansfree.errors import OptionError
from hansfree.evaluation import CLEAN_TRAINED
from hansfree.models import architecture_named, build_model, write_weights
from hansfree.pipeline import Experiment, Setting, diagnose_direction, keep_in_memory
from hansfree.result import Result

_BIASED_CLASS = 0


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What the demo does; the defaults take under 3 minutes on two cores."""

    artifact: str = "timestamp"
    model: str = "demo"
    size: int = 64  # pixels
    seed: int = 0
    n_train: int = 4000
    n_val: int = 1000
    n_test: int = 1000
    epochs: int = 10  # of training the biased model
    correction_epochs: int = 10  # of fine-tuning, for every method
    share: float = 0.5  # of the biased class's training images that carry the artifact

    @classmethod
    def quick(cls, **options: Any) -> Demo:
        """Return the demo at less than half of its size: under 45 seconds."""
        smaller = {"n_train": 1300, "n_val": 300, "n_test": 400, "epochs": 6, "correction_epochs": 5}
        return cls(**{**smaller, **options})

    def __post_init__(self) -> None:
        """Raise for options that cannot be used."""
        if Artifact.named(self.artifact).needs_file:
            raise OptionError(
                f"The demo cannot insert {self.artifact!r}, which needs a file: use a run file (hansfree init). "
                f"Known: {', '.join(name for name, kind in Artifact.members().items() if not kind.needs_file)}."
            )
        architecture_named(self.model)
        for name, least in (("size", 32), ("seed", 0)):
            if getattr(self, name) < least:
                raise OptionError(f"{name} is {getattr(self, name)}; at least {least} is needed.")

    def run(self, folder: Path, *, command: str = "", progress: Progress = silent) -> Result:
        """Run all missing stages."""
        with open_run(folder, {"hansfree": version("hansfree"), **asdict(self)}) as run:
            setting = self._setting(run, progress)
            experiment = Experiment(setting, run, progress=progress)
            diagnose_direction(experiment)
            methods = [*LatentCorrection.defaults(), Match.name]
            about = {name: getattr(self, name) for name in ("model", "size", "n_val", "n_test")}
            about |= {"title": f"hansfree demo: {self.artifact}", "command": command}
            return complete(experiment, methods, experiment.rows(methods), about, exports=False)

    def _setting(self, run: RunStore, progress: Progress) -> Setting:
        counts, starts = (self.n_train, self.n_val, self.n_test), (0, self.n_train, self.n_train + self.n_val)
        parts = [SyntheticLesions(n, size=self.size, seed=self.seed, start=start) for n, start in zip(counts, starts)]
        artifact = Artifact.named(self.artifact)()
        data = keep_in_memory(
            insert_bias(parts, artifact, biased_class=_BIASED_CLASS, share=self.share, seed=self.seed)
        )

        def reference() -> nn.Module | None:
            clean = data.clean_train
            return None if clean is None else self._trained(run, CLEAN_TRAINED, clean, progress)

        architecture = architecture_named(self.model)
        return Setting(
            name=f"demo-{self.artifact}",
            data=data,
            model=self._trained(run, "model", data.train, progress),
            reference=reference,
            layer=architecture.layer,
            tuning=FineTuning(
                optimizer=architecture.optimizer, epochs=self.correction_epochs, seed=self.seed, stable=True
            ),
        )

    def _trained(self, run: RunStore, name: str, data: ImageDataset, progress: Progress) -> nn.Module:
        """Return the trained model of the run folder, or train it."""
        path = run.path / f"{name}.safetensors"
        model = build_model(self.model, classes=len(data.class_names), seed=self.seed)

        def work() -> None:
            options = Pretraining(epochs=self.epochs, seed=self.seed)
            pretrain(model, data, options, progress=progress, label=f"train {name}")
            write_weights(path, model.state_dict())

        run.stage(f"train {name}", work)
        model.load_state_dict(load_file(path))
        return model.eval()
