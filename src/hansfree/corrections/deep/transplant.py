"""Transplant: paste the artifact onto images of every class, and train the network to answer as without it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from hansfree.corrections.deep.base import DeepCorrection
from hansfree.corrections.deep.images import TrainingImages
from hansfree.corrections.deep.insertion import Given, InsertFunction, Insertion, Measured, find_insertion
from hansfree.corrections.deep.loop import NetworkTuning, Objective, Step
from hansfree.corrections.deep.stages import find_stages
from hansfree.datasets.base import Normalize
from hansfree.errors import DataError


class Transplant(DeepCorrection, name="transplant"):
    """Pair each image with itself plus an artifact that was transplanted from an artifact image.

    The penalty is the squared difference of the logits of a pair, with the task loss on the image itself.

    Args:
        strength: multiplies the penalty.
        insert: inserts the artifact, where that is possible: takes a uint8 image and a random generator. None finds
            transplants in the labelled images.
    """

    title = "Transplant"
    grid = (0.3, 1.0, 3.0)

    def __init__(
        self, *, strength: float = 1.0, insert: InsertFunction | None = None, tuning: NetworkTuning | None = None
    ) -> None:
        super().__init__(strength=strength, tuning=tuning)
        self.insert = insert

    def objective(self, network: nn.Module, images: TrainingImages) -> Objective:
        """Find the insertion and the masks of all artifact images."""
        return _Pairing(network, images, self.insertions(network, images))

    def insertions(self, network: nn.Module, images: TrainingImages) -> list[Insertion]:
        """Return how each artifact is inserted."""
        if self.insert is not None:
            transform = getattr(images.dataset, "transform", None)
            if not isinstance(transform, Normalize):
                raise DataError(
                    "`insert` works on pixels: give a dataset with a `transform` of type hansfree.Normalize."
                )
            return [Given(self.insert, transform)]
        stages = find_stages(network, images.batch([0, 1]).to(self.tuning.device))
        found = [find_insertion(network, images, stages, artifact) for artifact in range(images.artifacts.shape[1])]
        usable = [each.insertion for each in found if each.is_usable]
        if not usable:
            raise DataError(
                "No transplant carries the artifact: " + "; ".join(map(_describe, found)) + ". Use Match instead."
            )
        return usable


class _Pairing(Objective):
    def __init__(self, network: nn.Module, images: TrainingImages, insertions: list[Insertion]) -> None:
        super().__init__()
        self.insertions = insertions
        self.donors = np.flatnonzero(images.artifacts.any(axis=1))
        self.place = np.full(len(images), -1)
        self.place[self.donors] = np.arange(len(self.donors))
        batches = np.array_split(self.donors, max(1, len(self.donors) // 64))
        self.masks = [
            torch.cat([insertion.masks(network, batch) for batch in images.batches(batches)])
            for insertion in insertions
        ]

    def draw(self, task_rows: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, int]:
        """Return an artifact image for three in four task images, and a seed."""
        return rng.choice(self.donors, max(1, 3 * len(task_rows) // 4)), int(rng.integers(2**31))

    def terms(self, network: nn.Module, step: Step, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the task images, and the squared difference to the logits of their pairs."""
        count, paired = len(step.task_rows), len(step.extra_rows)
        which = step.drawn % len(self.insertions)
        masks = self.masks[which][self.place[step.extra_rows]].to(images.device)
        inserted = self.insertions[which].insert(images[:paired], images[count:], masks, seed=step.drawn)
        logits = network(torch.cat([images[:count], inserted]))
        return logits[:count], (logits[count:] - logits[:paired]).square().sum() / paired


def _describe(measured: Measured) -> str:
    return (
        f"a transplanted {measured.insertion.kind} covers {measured.coverage:.0%} of the distance between the groups, "
        f"and {measured.area:.0%} of the image"
    )
