"""The biased model that an experiment corrects, and its clean-trained reference: trained, or found where kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load_file
from torch import nn

from hansfree.activations import collect_activations
from hansfree.corrections import Vanilla
from hansfree.datasets import ExampleSet
from hansfree.experiments.plans import Plan
from hansfree.fingerprints import fingerprint, fingerprint_model
from hansfree.models import architecture_named, build_model
from hansfree.progress import Progress, silent
from hansfree.studies import Study
from hansfree.training import FineTuning, Pretraining, pretrain, recipe_for
from hansfree.weights import write_weights


@dataclass(frozen=True, kw_only=True)
class BaseModels:
    """The models of a study before any correction, trained once and kept in the work folder."""

    study: Study
    plan: Plan
    work: Path
    progress: Progress = silent

    def trained(self, data: ExampleSet, label: str) -> tuple[nn.Module, Path]:
        """Return the model trained on ``data`` and the file it is kept in; it is trained where there is none yet.

        The file's name tells all that the weights depend on, those that training starts from included.
        """
        plan, model = self.plan, self.untrained(data)
        key = fingerprint(data.pictures, fingerprint_model(model), repr(self.recipe))
        path = self.work / "models" / f"{self.study.name}-{plan.model}-{key}.safetensors"
        if not path.exists():
            checkpoint = path.with_suffix(".checkpoint")
            if plan.trained == "head":
                model = self._train_head(model, data)
            else:
                self._train_whole(model, data, checkpoint, label)
            write_weights(path, model.state_dict())
            checkpoint.unlink(missing_ok=True)
        model.load_state_dict(load_file(path))
        return model.eval(), path

    @property
    def recipe(self) -> Pretraining | FineTuning:
        """How the plan's part of the model is trained."""
        return self.head_recipe() if self.plan.trained == "head" else self._whole_recipe()

    def untrained(self, data: ExampleSet) -> nn.Module:
        """Return the model as training starts from it."""
        plan = self.plan
        return build_model(plan.model, classes=len(data.class_names), seed=plan.seed, weights=plan.weights).eval()

    def _whole_recipe(self) -> Pretraining:
        plan = self.plan
        return recipe_for(
            self.study,
            plan.model,
            fresh=plan.weights is None,
            epochs=plan.epochs,
            seed=plan.seed,
            device=plan.device,
        )

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

    def _train_whole(self, model: nn.Module, data: ExampleSet, checkpoint: Path, label: str) -> None:
        recipe = self._whole_recipe()
        pretrain(
            model,
            data,
            recipe,
            workers=self.plan.workers,
            progress=self.progress,
            label=f"train {label}",
            checkpoint=checkpoint,
        )

    def _train_head(self, model: nn.Module, data: ExampleSet) -> nn.Module:
        layer = architecture_named(self.plan.model).layer
        activations = collect_activations(
            model, layer, data, folder=self.work / "activations", device=self.plan.device, progress=self.progress
        )
        return Vanilla(tuning=self.head_recipe()).correct(model, activations, progress=self.progress)
