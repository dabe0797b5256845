"""Corrections of the head: what follows a layer is fine-tuned on cached activations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from typing_extensions import Self

from hansfree._internal.progress import Progress, silent
from hansfree._internal.registry import RESERVED
from hansfree.activations import Activations, FeatureSpec, compute_features, cut_at
from hansfree.cavs import CAV
from hansfree.corrections.base import Candidate, Correction, Need
from hansfree.corrections.training import (
    FineTuning,
    FunctionalHead,
    HeadBatch,
    SolverSupport,
    TrainedHead,
    Watch,
    train_heads,
)
from hansfree.errors import DataError, DivergedError, OptionError
from hansfree.models.surgery import Cut, insert_after


class LatentCorrection(Correction):
    """Fine-tunes the head on cached activations; all strengths share the trunk.

    A method overrides some of eight hooks (below); the defaults are plain fine-tuning.

    Args:
        strength: multiplies the method's penalty.
        tuning: the recipe of the fine-tuning.
    """

    def __init__(self, *, strength: float = 1.0, tuning: FineTuning | None = None) -> None:
        super().__init__(strength=strength)
        self.tuning = tuning or FineTuning()

    @classmethod
    def for_run(
        cls, *, cav: CAV, images: Dataset[Any], tuning: FineTuning, options: Mapping[str, Any] | None = None
    ) -> Self:
        """Create the method from what a run has: a CAV, and the training images with masks."""
        given = [cav] * (Need.CAV in cls.info.needs) + [images] * (Need.MASKS in cls.info.needs)
        return cls(*given, tuning=tuning, **(options or {}))

    def describe(self) -> dict[str, str]:
        """Return what the table of results says about the options."""
        return {"method": self.name}

    # ---- hooks -------------------------------------------------------------------------------------------------

    def features(self, activations: Activations) -> FeatureSpec:
        """Return what the head is trained on."""
        return FeatureSpec()

    def loss_terms(self, head: FunctionalHead, batch: HeadBatch) -> tuple[Tensor, Tensor | None]:
        """Return the logits, and the penalty whose mean the strength multiplies (None for none)."""
        return head(*batch.values), None

    def edit(self, activations: Activations) -> nn.Module | None:
        """Return the module that stays behind the layer in the corrected model."""
        return None

    @property
    def solver(self) -> SolverSupport:
        """Whether the head can be trained to convergence, and whether the penalty is quadratic."""
        return SolverSupport.NONE if Need.MASKS in self.info.needs else SolverSupport.SMOOTH

    def outputs(self, logits: Tensor) -> Tensor:
        """Return outputs, linear in the logits, whose squared changes are all of a quadratic penalty."""
        return logits

    def train(
        self,
        cut: Cut,
        activations: Activations,
        strengths: Sequence[float],
        *,
        watch: Watch | None = None,
        progress: Progress = silent,
        label: str | None = None,
    ) -> Iterator[TrainedHead]:
        """Fine-tune one head per strength on the same cache (:func:`hansfree.corrections.training.train_heads`).

        Args:
            watch: called after every epoch; returns one validation per head.
            label: the name in progress bars and warnings; the method's own by default.
        """
        self.check(cut, activations)
        features = compute_features(cut, activations, self.features(activations))
        return train_heads(
            cut, features, self, strengths, self.tuning, watch=watch, progress=progress, label=label or self.name
        )

    def check(self, cut: Cut, activations: Activations) -> None:
        """Raise before any work starts when these activations cannot serve."""
        if len(activations) == 0 or int(activations.labels.min()) < 0:
            raise DataError("Fine-tuning needs images with labels of at least 0.")
        if (largest := int(activations.labels.max())) >= (classes := count_classes(cut, activations)):
            raise DataError(f"There are labels up to {largest}, but the model has the classes 0 to {classes - 1}.")

    def remark(self, activations: Activations, *, clean: Activations, biased: Activations | None) -> str:
        """Return a sentence for the results, or nothing, given training and held-out activations."""
        return ""

    # ---- final -------------------------------------------------------------------------------------------------

    def candidates(
        self,
        model: nn.Module,
        data: Activations,
        strengths: Sequence[float] | None = None,
        *,
        folder: Path | None = None,
        progress: Progress = silent,
    ) -> Iterator[Candidate]:
        """Yield one candidate per strength; nothing is stored in ``folder``."""
        cut = cut_at(model, data)
        wanted = (self.info.strengths or (self.strength,)) if strengths is None else strengths
        for head in self.train(cut, data, wanted, progress=progress):
            if head.is_finite:
                build = partial(lambda head: self.install(model, cut, data, head.state), head)
                yield Candidate(self.name, head.strength, build, history=head.history)
            else:
                settings = [f"a strength below {head.strength:g}"] if self.info.has_strength else []
                if self.tuning.optimizer != "converged":
                    settings.append(f"a learning rate below {self.tuning.learning_rate:g}")
                advice = f" Use {' or '.join(settings)}." if settings else ""
                error = DivergedError(f"{type(self).__name__} diverged: the weights are not finite.{advice}")
                yield Candidate(self.name, head.strength, None, error, head.history)

    def install(self, model: nn.Module, cut: Cut, activations: Activations, state: dict[str, Tensor]) -> nn.Module:
        """Return a copy of the model with a trained head and the module that the method inserts, if any."""
        corrected = cut.model_with(state, model)
        edit = self.edit(activations)
        if edit is None:
            return corrected
        like = next(corrected.parameters())
        return insert_after(corrected, activations.layer, edit.to(like.device, like.dtype), order=cut.order)


class CAVCorrection(LatentCorrection):
    """A correction along the directions of a fitted CAV."""

    def __init__(self, cav: CAV, *, strength: float = 1.0, tuning: FineTuning | None = None) -> None:
        super().__init__(strength=strength, tuning=tuning)
        self.cav = cav

    def describe(self) -> dict[str, str]:
        """Add the name of the CAV."""
        return {**super().describe(), "cav": self.cav.label}

    def check(self, cut: Cut, activations: Activations) -> None:
        """Raise for a CAV of another layer."""
        super().check(cut, activations)
        self.cav.check_layer(activations.layer, activations.pooled.shape[1])


def count_classes(cut: Cut, activations: Activations) -> int:
    """Return the model's number of classes, from one image."""
    cut.eval_mode()
    with torch.no_grad():
        return int(cut.head(*cut.phi(*next(activations.stream(batch_size=1)))).shape[1])


def uses_cav(method: str) -> bool:
    """Return whether a registered method needs a CAV."""
    return Need.CAV in Correction.named(method).info.needs


def along_cavs(methods: Sequence[str], cavs: Sequence[str]) -> Iterator[str]:
    """Yield each method and, where it needs a CAV, its names along further ones."""
    for method in methods:
        yield method
        if uses_cav(method):
            yield from (f"{method}{RESERVED}{cav}" for cav in cavs)


def split_name(name: str) -> tuple[str, str | None]:
    """Return the method's own name, and the further CAV in the name (None: the run's); nothing is checked."""
    method, _, cav = name.partition(RESERVED)
    return method, cav or None


def method_named(name: str) -> type[LatentCorrection]:
    """Return the method of a name, which may hold a CAV; raise for an unknown name or a method without CAV."""
    method, cav = split_name(name)
    member = LatentCorrection.named(method)
    if RESERVED in name:
        CAV.named(cav or "")
        if not uses_cav(method):
            raise OptionError(f"There is no {name!r}: {method} uses no CAV. Leave out {RESERVED}{cav}.")
    return member
