"""Corrections of the whole network: all layers are fine-tuned on images, from artifact labels alone."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from hansfree._internal.progress import Progress, silent
from hansfree._internal.registry import Registered
from hansfree.corrections.deep.images import TrainingImages
from hansfree.corrections.deep.insertion import NoTransplantError
from hansfree.corrections.deep.loop import NetworkTuning, Objective, train_network
from hansfree.errors import DataError, DivergedError, HansfreeError, OptionError


class DeepCorrection(Registered, ABC):
    """A way to unlearn an artifact that the whole network has learned. A subclass writes :meth:`objective`.

    Args:
        strength: multiplies the penalty.
        tuning: the recipe of the fine-tuning.
    """

    kind = "correction of the whole network"
    title: ClassVar[str]
    grid: ClassVar[tuple[float, ...]] = (1.0,)

    def __init__(self, *, strength: float = 1.0, tuning: NetworkTuning | None = None) -> None:
        if not (np.isfinite(strength) and strength >= 0):
            raise OptionError(f"strength is {strength}; it must be a number of at least 0.")
        self.strength = strength
        self.tuning = tuning or NetworkTuning()

    @abstractmethod
    def objective(self, network: nn.Module, images: TrainingImages) -> Objective:
        """Return the penalty of one training, prepared on the network as it is before it."""

    def check(self, images: TrainingImages) -> None:
        """Raise DataError if these images are not usable."""
        shares = images.artifacts.mean(axis=0)
        if ((shares == 0) | (shares == 1)).any():
            raise DataError("Each artifact needs images with and without it.")
        images.task_weights()

    def correct(
        self,
        model: nn.Module,
        images: Dataset[Any] | TrainingImages,
        *,
        checkpoint: Path | None = None,
        progress: Progress = silent,
    ) -> nn.Module:
        """Return a corrected model of the same class; ``model`` is not changed.

        All parameters are trained, those that ``model`` has frozen too.

        Args:
            images: (image, label, has_artifact) with normalised images, as the model takes them, without random
                transforms.
            checkpoint: file with the state after every epoch, to resume from; the caller deletes it.
        """
        known = TrainingImages.of(images, workers=self.tuning.workers)
        self.check(known)
        if any(each.dtype in (torch.float16, torch.bfloat16) for each in model.parameters()):
            raise OptionError("The model is in half precision. Give it in float32: `model.float()`.")
        network = copy.deepcopy(model).eval().to(self.tuning.device)
        objective = self.objective(network, known)
        train_network(
            network,
            objective,
            known,
            self.tuning,
            self.strength,
            checkpoint=checkpoint,
            key=self.key(known),
            progress=progress,
            label=f"{self.name}, strength {self.strength:g}",
        )
        return _restore_flags(network, model)

    def key(self, images: TrainingImages) -> str:
        """Return what a checkpoint belongs to, besides strength and tuning."""
        own = {name: value for name, value in vars(self).items() if name not in ("strength", "tuning")}
        return f"{self.name} {sorted(own.items())}"

    def with_strength(self, strength: float) -> DeepCorrection:
        """Return the same method with another strength."""
        other = copy.copy(self)
        DeepCorrection.__init__(other, strength=strength, tuning=self.tuning)
        return other

    def path(
        self,
        model: nn.Module,
        images: Dataset[Any],
        *,
        strengths: Sequence[float] | None = None,
        folder: Path | None = None,
        progress: Progress = silent,
    ) -> Iterator[Candidate]:
        """Yield one corrected model per strength, each trained from the original weights.

        Args:
            strengths: the method's own grid by default.
            folder: keeps a checkpoint per strength, so that a stopped path resumes.
        """
        known = TrainingImages.of(images, workers=self.tuning.workers)
        for strength in self.grid if strengths is None else strengths:
            method = self.with_strength(strength)
            checkpoint = None if folder is None else folder / f"{self.name}-{strength:g}.checkpoint"
            try:
                corrected = method.correct(model, known, checkpoint=checkpoint, progress=progress)
            except (DivergedError, NoTransplantError) as error:
                yield Candidate(self.name, strength, None, error)
                continue
            yield Candidate(self.name, strength, corrected)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model of one method and strength, or the error for which there is none."""

    method: str
    strength: float
    model: nn.Module | None
    error: HansfreeError | None = None


def _restore_flags(network: nn.Module, model: nn.Module) -> nn.Module:
    """Give the network the modes and flags of the original model."""
    for own, other in zip(network.modules(), model.modules()):
        own.training = other.training
    for trained, parameter in zip(network.parameters(), model.parameters()):
        trained.requires_grad_(parameter.requires_grad)
        trained.grad = None
    return network
