"""Dataset x model: base models, and where their experiments are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import nn

from hansfree._internal.hashing import fingerprint, fingerprint_model, hash_weights
from hansfree._internal.progress import Progress, silent
from hansfree._internal.store import RunStore, open_run
from hansfree.activations import collect_activations
from hansfree.corrections import Vanilla, check_selectable
from hansfree.corrections.training import FineTuning, Pretraining, pretrain
from hansfree.data import SETS, BiasedData, ImageDataset
from hansfree.errors import OptionError
from hansfree.models import PRETRAINED, architecture_named, build_model, read_weights, write_weights
from hansfree.paper.dataset import BenchmarkDataset
from hansfree.pipeline import Experiment, Plan, Setting, keep_in_memory


@dataclass(frozen=True, kw_only=True)
class BaseModels:
    """The models of a study before any correction, trained once and cached in the work folder."""

    study: BenchmarkDataset
    plan: Plan
    work: Path
    progress: Progress = silent

    def trained(self, data: ImageDataset, label: str) -> tuple[nn.Module, Path]:
        """Return the model trained on ``data`` and its cached weights file, whose name has a hash of all inputs."""
        plan, model = self.plan, self.untrained(data)
        key = fingerprint(data.pixel_fingerprint, fingerprint_model(model), repr(self.recipe))
        path = self.work / "models" / f"{self.study.name}-{plan.model}-{key}.safetensors"
        if not path.exists():
            checkpoint = path.with_suffix(".checkpoint")
            if isinstance(self.recipe, FineTuning):
                layer, folder = architecture_named(plan.model).layer, self.work / "activations"
                activations = collect_activations(
                    model, layer, data, folder=folder, device=plan.device, progress=self.progress
                )
                model = Vanilla(tuning=self.recipe).correct(model, activations, progress=self.progress)
            else:
                pretrain(
                    model,
                    data,
                    self.recipe,
                    workers=plan.workers,
                    progress=self.progress,
                    label=f"train {label}",
                    checkpoint=checkpoint,
                )
            write_weights(path, model.state_dict())
            checkpoint.unlink(missing_ok=True)
        model.load_state_dict(load_file(path))
        return model.eval(), path

    @property
    def recipe(self) -> Pretraining | FineTuning:
        """How the plan's part of the model is trained."""
        plan = self.plan
        if plan.trained == "head":
            return self.head_recipe()
        options: dict[str, Any] = {"epochs": plan.epochs, "seed": plan.seed, "device": plan.device}
        return recipe_for(self.study, plan.model, fresh=plan.weights is None, **options)

    def head_recipe(self) -> FineTuning:
        """The head alone starts from random weights and costs little: larger steps, and more of them."""
        plan = self.plan
        return FineTuning(
            optimizer="adam",
            learning_rate=architecture_named(plan.model).head_rate,
            epochs=30 if plan.epochs is None else plan.epochs,
            seed=plan.seed,
            device=plan.device,
        )

    def untrained(self, data: ImageDataset) -> nn.Module:
        """Return the model as training starts from it."""
        plan = self.plan
        return build_model(plan.model, classes=len(data.class_names), seed=plan.seed, weights=plan.weights).eval()


# what may differ when a run resumes: each method is a stage of its own, and strengths are listed apart
_CHANGE_NOTHING = ("left_out", "workers", "strengths")


class Subject:
    """A study and a model, ready to be examined; the biased model is trained when its experiment is first asked for."""

    def __init__(
        self, study: BenchmarkDataset, plan: Plan, run: RunStore, work: Path, *, progress: Progress = silent
    ) -> None:
        self.study, self.plan, self.run, self.work, self.progress = study, plan, run, work, progress

    @cached_property
    def data(self) -> BiasedData:
        """The study's sets."""
        return keep_in_memory(self.study.data(self.plan.model), progress=self.progress)

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment on the biased model, which is trained first unless the work folder has it."""
        study, plan, data = self.study, self.plan, self.data
        check_selectable(data)  # before the training, which may take hours
        model, _ = self.models.trained(data.learned, "biased model")
        self.run.check_weights(fingerprint_model(model))
        setting = Setting(
            name=subject_name(study, plan),
            data=data,
            model=model,
            reference=self._reference,
            layer=architecture_named(plan.model).layer,
            tuning=tuning_for(study, plan.model, epochs=plan.correction_epochs, seed=plan.seed, device=plan.device),
            grid=plan.grid,
            strengths=plan.strengths,
            repeats=plan.repeats,
            train=plan.corrected,
            workers=plan.workers,
        )
        return Experiment(setting, self.run, cache=self.work / "activations", progress=self.progress)

    @property
    def models(self) -> BaseModels:
        """The models before any correction."""
        return BaseModels(study=self.study, plan=self.plan, work=self.work, progress=self.progress)

    def _reference(self) -> nn.Module | None:
        """Return the model that never saw the artifact, if there is one."""
        if self.study.starts_clean and self.plan.weights == PRETRAINED:
            return self.models.untrained(self.data.train)
        if self.data.clean_train is None:
            return None
        return self.models.trained(self.data.clean_train, "clean reference")[0]


def subject_name(study: BenchmarkDataset, plan: Plan) -> str:
    """Return what results and run folders call a subject."""
    return f"{study.name}-{study.artifact}-{plan.model}"


@contextmanager
def open_subject(study: BenchmarkDataset, plan: Plan, work: Path, *, progress: Progress = silent) -> Iterator[Subject]:
    """Open the run folder of a study and a model.

    Args:
        work: Folder for models, caches and runs; what lies there already is used again.
    """
    config: dict[str, Any] = {
        "hansfree": version("hansfree"),
        "data": study.name,
        "artifact": study.artifact,
        "size": study.size,
        "data_seed": study.seed,
        "strengths": {method: list(values) for method, values in plan.strengths.items()},
        **{key.name: getattr(plan, key.name) for key in fields(plan) if key.name not in _CHANGE_NOTHING},
    }
    data = study.data(plan.model)  # known without reading a picture
    parts = [getattr(data, name).fingerprint for name in SETS]
    if not data.is_inserted:
        parts.append(f"biased class {data.biased_class}")  # an inserted artifact implies the class
    if plan.weights not in (None, PRETRAINED):
        parts.append(hash_weights(read_weights(Path(plan.weights))))  # the path does not identify the content
    # another plan, other images or other first weights have another folder
    folder = f"{subject_name(study, plan)}-{fingerprint(repr(config), *parts)[:8]}"
    with open_run(work / "runs" / folder, config) as run:
        yield Subject(study, plan, run, work, progress=progress)


_CORRECTION_RATE = 1e-4


def recipe_for(
    study: BenchmarkDataset | type[BenchmarkDataset],
    model: str,
    *,
    fresh: bool = False,
    epochs: int | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> Pretraining:
    """Return how a model is trained on a dataset: optimiser and rate by architecture, epochs and milestones by dataset.

    Args:
        fresh: the model starts from random weights, where the paper's start from pretrained ones: Adam along a cosine,
            if the dataset has a rate for that.
        epochs: None is the dataset's number; the milestones stay where they are.
    """
    known, recipe = architecture_named(model), study.recipe
    if epochs is None and model not in recipe.epochs:
        others = f" Known: {', '.join(recipe.epochs)}." if recipe.epochs else ""
        raise OptionError(f"{study.title} has no recipe for {model!r}.{others} Give the number of epochs.")
    from_scratch = fresh and model in recipe.fresh_rates
    return Pretraining(
        optimizer="adam" if from_scratch else known.optimizer,
        learning_rate=recipe.fresh_rates[model] if from_scratch else known.learning_rate,
        milestones=None if from_scratch else recipe.milestones,
        epochs=recipe.epochs[model] if epochs is None else epochs,
        batch_size=recipe.batch_size,
        seed=seed,
        device=device,
    )


def tuning_for(
    study: BenchmarkDataset | type[BenchmarkDataset],
    model: str,
    *,
    epochs: int = 10,
    seed: int = 0,
    device: str = "cpu",
) -> FineTuning:
    """Return how a model is corrected: the optimiser of its training at 1e-4, or at the dataset's own rate."""
    return FineTuning(
        optimizer=architecture_named(model).optimizer,
        learning_rate=study.recipe.correction_rates.get(model, _CORRECTION_RATE),
        epochs=epochs,
        seed=seed,
        device=device,
    )
