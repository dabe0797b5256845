"""Corrections of the head: what follows a layer is fine-tuned on cached activations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from typing_extensions import Self

from hansfree._internal.progress import Progress, silent
from hansfree._internal.registry import RESERVED
from hansfree.activations import Activations, FeatureSpec, compute_features, cut_at
from hansfree.cavs import CAV
from hansfree.corrections.base import Candidate, Correction, Need
from hansfree.corrections.selection import (
    BalancedRule,
    DerivativeRule,
    SelectionRule,
    make_validator,
    original_predictions,
)
from hansfree.corrections.strength_path import CorrectedHead, StrengthPath, fit_path
from hansfree.corrections.training import (
    MAX_GRADIENT,
    FineTuning,
    FunctionalHead,
    HeadBatch,
    Heads,
    Solve,
    SolverSupport,
    TrainedHead,
    Watch,
    converged,
    solutions,
    train_heads,
)
from hansfree.data import check_same_images
from hansfree.errors import DataError, DivergedError, OptionError
from hansfree.metrics import MIN_GROUP, large_classes
from hansfree.models.surgery import Cut, insert_after
from hansfree.reasons import Reason


class LatentCorrection(Correction):
    """Fine-tunes the head on cached activations; all strengths share the trunk.

    A method overrides some of eight hooks (below); the defaults are plain fine-tuning.
    """

    def __init__(self, *, strength: float = 1.0, tuning: FineTuning | None = None) -> None:
        super().__init__(strength=strength)
        self.tuning = tuning or FineTuning()

    @final
    @classmethod
    def for_run(
        cls, *, cav: CAV, images: Dataset[Any], tuning: FineTuning, options: Mapping[str, Any] | None = None
    ) -> Self:
        """Create the method from what a run has: a CAV, and the training images with masks."""
        given = [cav] * (Need.CAV in cls.info.needs) + [images] * (Need.MASKS in cls.info.needs)
        return cls(*given, tuning=tuning, **(options or {}))

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

    def solution(self, cut: Cut, activations: Activations) -> tuple[Solve, float] | None:
        """Return what finds the head of a strength, and the gradient that it may leave; None: heads take steps."""
        if self.tuning.optimizer != "converged":
            return None
        return converged(cut, compute_features(cut, activations, self.features(activations)), self), MAX_GRADIENT

    def check(self, cut: Cut, activations: Activations) -> None:
        """Raise before any work starts when these activations cannot serve."""
        if len(activations) == 0 or int(activations.labels.min()) < 0:
            raise DataError("Fine-tuning needs images with labels of at least 0.")
        if (largest := int(activations.labels.max())) >= (classes := count_classes(cut, activations)):
            raise DataError(f"There are labels up to {largest}, but the model has the classes 0 to {classes - 1}.")

    def details(self, train: Activations, *, clean: Activations, biased: Activations | None) -> tuple[Reason, ...]:
        """Return facts for the report, given training and held-out activations."""
        return ()

    # ---- final -------------------------------------------------------------------------------------------------

    @final
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
        """Train one head per strength on the same cache; ``watch`` gives one validation per head after each epoch."""
        self.check(cut, activations)
        given: dict[str, Any] = {"watch": watch, "progress": progress, "label": label or self.name}
        if (found := self.solution(cut, activations)) is not None:
            return solutions(cut, self, strengths, *found, **given)
        return train_heads(
            cut, compute_features(cut, activations, self.features(activations)), self, strengths, **given
        )

    @final
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
                yield Candidate(self.name, head.strength, build)
            else:
                settings = [f"a strength below {head.strength:g}"] if self.info.has_strength else []
                if self.tuning.optimizer != "converged":
                    settings.append(f"a learning rate below {self.tuning.learning_rate:g}")
                advice = f" Use {' or '.join(settings)}." if settings else ""
                error = DivergedError(f"{type(self).__name__} diverged: the weights are not finite.{advice}")
                yield Candidate(self.name, head.strength, error)

    @final
    def path(
        self,
        model: nn.Module,
        activations: Activations,
        *,
        validation: Activations | tuple[Activations, Activations],
        strengths: Sequence[float] | None = None,
        budget: float = 0.02,
        progress: Progress = silent,
    ) -> StrengthPath[CorrectedHead]:
        """Train every strength, and select one on validation images as a run does; ``path.best.model`` is corrected.

        Args:
            activations: Of the training images.
            validation: Of held-out images with artifact labels; or of the same images without, and with the artifact
                inserted.
            budget: How much balanced accuracy on clean validation images a strength may cost.

        Examples:
            >>> import hansfree as hf
            >>> model = nn.Sequential(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.MaxPool2d(12), nn.Flatten(), nn.Linear(4, 2))
            >>> def activations(start, share):
            ...     lesions = hf.SyntheticLesions(80, size=16, classes=2, start=start)
            ...     return hf.collect_activations(model, "0", hf.WithArtifact(lesions, hf.Timestamp(), share=share))
            >>> train, held_out = activations(0, 0.5), (activations(80, 0.0), activations(80, 1.0))
            >>> cav = hf.SignalCAV().fit(train.pooled, train.has_artifact)
            >>> path = hf.RRClArC(cav).path(model, train, validation=held_out, strengths=[1.0, 10.0])
            >>> [line["strength"] for line in path.table()]
            [1.0, 10.0]
        """
        cut = cut_at(model, activations)
        self.check(cut, activations)
        is_inserted = isinstance(validation, tuple)
        clean, biased = validation if isinstance(validation, tuple) else _by_artifact(validation)
        if any((each.layer, each.trunk) != (activations.layer, activations.trunk) for each in (clean, biased)):
            raise DataError("The validation activations are of another layer or model than the training activations.")
        if len(large_classes(clean.labels)) < 2:
            raise DataError(
                f"A strength is chosen on 2 or more classes of at least {MIN_GROUP} clean validation images."
            )
        if is_inserted:
            check_same_images(clean, biased)
        rule: SelectionRule = BalancedRule(budget)
        shift, cav = None, getattr(self, "cav", None)
        if not is_inserted and len(large_classes(biased.labels)) < 2:
            if cav is None:
                raise DataError(
                    f"The accuracy with the artifact takes 2 classes of at least {MIN_GROUP} such validation images. "
                    "Give more, or the same images without and with the artifact inserted."
                )
            rule, shift = DerivativeRule(budget), (cav.scale_ @ cav.directions_)[None]
        marked = (
            activations.labels if activations.has_artifact is None else activations.labels[activations.has_artifact]
        )
        judge = partial(
            make_validator,
            cut,
            clean,
            biased if len(biased) else None,
            biased_class=int(np.bincount(marked if len(marked) else activations.labels).argmax()),
            original=original_predictions(cut, compute_features(cut, clean), self.tuning.device),
            inserted=is_inserted,
            shift=shift,
        )
        before = judge()(Heads(cut, 1, self.tuning.device))[0]
        tried = strengths or self.info.strengths or (self.strength,)
        heads = self.train(cut, activations, sorted(tried), watch=judge(edit=self.edit(activations)), progress=progress)
        install = partial(self.install, model, cut, activations)
        corrected = (CorrectedHead(h.strength, h.make_state, h.is_finite, h.history, install) for h in heads)
        return fit_path(corrected, rule.selector(before, has_strength=self.info.has_strength))

    @final
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

    def check(self, cut: Cut, activations: Activations) -> None:
        """Raise for a CAV of another layer."""
        super().check(cut, activations)
        self.cav.check_layer(activations.layer, activations.pooled.shape[1])


def _by_artifact(images: Activations) -> tuple[Activations, Activations]:
    """Return the images without and those with the artifact."""
    if images.has_artifact is None:
        raise DataError("The validation images need artifact labels: a dataset of (image, label, has_artifact).")
    has_artifact = np.asarray(images.has_artifact, dtype=bool)
    return images.select(np.flatnonzero(~has_artifact)), images.select(np.flatnonzero(has_artifact))


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
