"""Corrections of the whole network: all layers are fine-tuned on images, from artifact labels alone."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from hansfree._internal.progress import Progress, silent
from hansfree.corrections.base import Candidate, Correction
from hansfree.corrections.deep.images import TrainingImages
from hansfree.corrections.deep.insertion import NoTransplantError
from hansfree.corrections.deep.loop import NetworkTuning, Objective, train_network
from hansfree.data import BiasedData
from hansfree.errors import DataError, DivergedError, OptionError


class DeepCorrection(Correction):
    """Fine-tunes a copy of the whole network; every strength starts from the original weights.

    A method overrides `objective`, and where needed `check` and `key`.

    Args:
        strength: multiplies the penalty.
        tuning: the recipe of the fine-tuning.
    """

    def __init__(self, *, strength: float = 1.0, tuning: NetworkTuning | None = None) -> None:
        super().__init__(strength=strength)
        self.tuning = tuning or NetworkTuning()

    @classmethod
    def for_run(cls, *, data: BiasedData, tuning: NetworkTuning) -> DeepCorrection:
        """Return the method as a run uses it."""
        return cls(tuning=tuning)

    def describe(self) -> dict[str, str]:
        """Return what the table of results says about the options of this method."""
        return {"method": self.name}

    @abstractmethod
    def objective(self, network: nn.Module, images: TrainingImages) -> Objective:
        """Return the penalty of one training, prepared on the network as it is before it."""

    def check(self, images: TrainingImages) -> None:
        """Raise DataError if these images are not usable."""
        shares = images.artifacts.mean(axis=0)
        if ((shares == 0) | (shares == 1)).any():
            raise DataError("Each artifact needs images with and without it.")
        images.task_weights()

    def candidates(
        self,
        model: nn.Module,
        data: Dataset[Any] | TrainingImages,
        strengths: Sequence[float] | None = None,
        *,
        folder: Path | None = None,
        progress: Progress = silent,
    ) -> Iterator[Candidate]:
        """Yield one corrected model per strength, each trained from the original weights.

        All parameters are trained, those that ``model`` has frozen too.

        Args:
            data: (image, label, has_artifact) with normalised images, as the model takes them, without random
                transforms.
            folder: holds a checkpoint per strength, to resume from; the caller deletes them.
        """
        images = TrainingImages.of(data, workers=self.tuning.workers)
        self.check(images)
        if any(each.dtype in (torch.float16, torch.bfloat16) for each in model.parameters()):
            raise OptionError("The model is in half precision. Give it in float32: `model.float()`.")
        for strength in self.info.strengths if strengths is None else strengths:
            checkpoint = None if folder is None else folder / f"{self.name}-{strength:g}.checkpoint"
            try:
                network = self._train(model, images, strength, checkpoint, progress)
            except (DivergedError, NoTransplantError) as error:
                yield Candidate(self.name, strength, None, error)
                continue
            yield Candidate(self.name, strength, partial(_same, network))

    def _train(
        self, model: nn.Module, images: TrainingImages, strength: float, checkpoint: Path | None, progress: Progress
    ) -> nn.Module:
        network = copy.deepcopy(model).eval().to(self.tuning.device)
        train_network(
            network,
            self.objective(network, images),
            images,
            self.tuning,
            strength,
            checkpoint=checkpoint,
            key=self.key(images),
            progress=progress,
            label=f"{self.name}, strength {strength:g}",
        )
        return _restore_flags(network, model)

    def key(self, images: TrainingImages) -> str:
        """Return what a checkpoint belongs to, besides strength and tuning."""
        own = {name: value for name, value in vars(self).items() if name not in ("strength", "tuning")}
        return f"{self.name} {sorted(own.items())}"


def _same(network: nn.Module) -> nn.Module:
    return network


def _restore_flags(network: nn.Module, model: nn.Module) -> nn.Module:
    """Give the network the modes and flags of the original model."""
    for own, other in zip(network.modules(), model.modules()):
        own.training = other.training
    for trained, parameter in zip(network.parameters(), model.parameters()):
        trained.requires_grad_(parameter.requires_grad)
        trained.grad = None
    return network.to(next(model.parameters()).device)
