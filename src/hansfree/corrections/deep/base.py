"""Corrections of the whole network: all layers are fine-tuned on images, from artifact labels alone."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import nn
from torch.utils.data import Dataset

from hansfree.corrections.deep.images import TrainingImages
from hansfree.corrections.deep.loop import NetworkTuning, Objective, train_network
from hansfree.errors import DataError, DivergedError, OptionError
from hansfree.progress import Progress, silent
from hansfree.registry import Registered


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
        """Raise before any work when these images cannot serve."""
        shares = images.artifacts.mean(axis=0)
        if ((shares == 0) | (shares == 1)).any():
            raise DataError("Each artifact needs images with and without it.")
        images.task_weights()

    def correct(
        self,
        model: nn.Module,
        images: Dataset[Any],
        *,
        checkpoint: Path | None = None,
        progress: Progress = silent,
    ) -> nn.Module:
        """Return a corrected model of the same class; ``model`` is not changed.

        Args:
            images: (image, label, has_artifact) with normalised images, as the model takes them.
            checkpoint: file with the state after every epoch, to resume from; the caller deletes it.
        """
        known = TrainingImages(images, workers=self.tuning.workers)
        self.check(known)
        network = copy.deepcopy(model).eval().to(self.tuning.device)
        objective = self.objective(network, known)
        train_network(
            network,
            objective,
            known,
            self.tuning,
            self.strength,
            checkpoint=checkpoint,
            key=repr(sorted(self.options().items())),
            progress=progress,
            label=f"{self.name}, strength {self.strength:g}",
        )
        return _like(network, model)

    def options(self) -> dict[str, object]:
        """Return the options that a checkpoint belongs to."""
        own = {name: value for name, value in vars(self).items() if name != "strength"}
        # A function's repr holds its address, which is another one after a restart.
        return {"name": self.name, **{name: getattr(value, "__qualname__", value) for name, value in own.items()}}

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
        for strength in strengths or self.grid:
            method = self.with_strength(strength)
            checkpoint = None if folder is None else folder / f"{self.name}-{strength:g}.checkpoint"
            try:
                corrected = method.correct(model, images, checkpoint=checkpoint, progress=progress)
            except DivergedError:
                yield Candidate(self.name, strength, None)
                continue
            yield Candidate(self.name, strength, corrected)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model of one method and strength; None where the training diverged."""

    method: str
    strength: float
    model: nn.Module | None


def _like(network: nn.Module, model: nn.Module) -> nn.Module:
    """Give the network the modes and flags of the original model."""
    for own, other in zip(network.modules(), model.modules()):
        own.training = other.training
    for trained, parameter in zip(network.parameters(), model.parameters()):
        trained.requires_grad_(parameter.requires_grad)
        trained.grad = None
    return network
