"""Transplant: paste the artifact onto images of every class, and train the network to answer as without it."""

from __future__ import annotations

import logging

import numpy as np
import torch
from torch import Tensor, nn

from hansfree._internal.hashing import fingerprint
from hansfree.corrections.base import MethodInfo, Need
from hansfree.corrections.deep.base import DeepCorrection, NetworkTuning, Objective, Step, task_loss
from hansfree.corrections.deep.images import TrainingImages
from hansfree.corrections.deep.insertion import (
    Given,
    Insertion,
    Measured,
    NoTransplantError,
    find_insertion,
    from_bytes,
    to_bytes,
)
from hansfree.corrections.deep.stages import find_stages
from hansfree.data import Artifact, BiasedData, FromFunction, InsertFunction, Normalize
from hansfree.errors import DataError

log = logging.getLogger(__name__)


class Transplant(DeepCorrection, name="transplant"):
    """Pair each image with itself plus an artifact that was transplanted from an artifact image.

    The penalty is the squared difference of the logits of a pair, and the task loss of the image with the artifact,
    which keeps its label.

    Args:
        insert: the artifact, or a function that inserts it (`hansfree.data.InsertFunction`). None finds transplants in
            the labelled images.

    Examples:
        >>> import hansfree as hf
        >>> from hansfree.corrections import NetworkTuning
        >>> lesions = hf.SyntheticLesions(80, size=16, classes=2)
        >>> images = hf.WithArtifact(lesions, hf.Timestamp(), share=0.5, only_class=0, elsewhere=0.2)
        >>> model = nn.Sequential(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(36, 2))
        >>> type(hf.Transplant(insert=hf.Timestamp(), tuning=NetworkTuning(epochs=1)).correct(model, images)).__name__
        'Sequential'
    """

    info = MethodInfo(
        title="Transplant", strengths=(1.0,), needs=frozenset({Need.ARTIFACT_LABELS}), inserts_artifact=True
    )

    def __init__(
        self,
        *,
        strength: float = 1.0,
        insert: Artifact | InsertFunction | None = None,
        tuning: NetworkTuning | None = None,
    ) -> None:
        super().__init__(strength=strength, tuning=tuning)
        self.insert = insert

    @classmethod
    def for_run(cls, *, data: BiasedData, tuning: NetworkTuning) -> Transplant:
        """Insert the artifact itself where the run can."""
        return cls(insert=data.inserted, tuning=tuning)

    def key(self, images: TrainingImages) -> str:
        """Name a function by what it does to the first image: its own name says too little."""
        if self.insert is None:
            return super().key(images)
        inserted = self.insertions(nn.Identity(), images)[0].insert(*[images.batch([0])] * 3)
        return f"{self.name} {fingerprint(inserted.numpy())}"

    def objective(self, network: nn.Module, images: TrainingImages) -> Objective:
        """Find the insertion and the masks of all artifact images."""
        return _Pairing(network, images, self.insertions(network, images))

    def insertions(self, network: nn.Module, images: TrainingImages) -> dict[int, Insertion]:
        """Return how each artifact is inserted; artifacts that no transplant carries are logged and left out."""
        if self.insert is not None:
            transform = getattr(images.dataset, "transform", None)
            if not isinstance(transform, Normalize):
                raise DataError(
                    "`insert` works on pixels: give a dataset with a `transform` of type hansfree.Normalize."
                )
            given = self.insert
            if not isinstance(given, Artifact):
                given = FromFunction(given, channels=len(transform.mean), size=images.batch([0]).shape[2])
            return {0: Given(given, transform)}
        stages = find_stages(network, images.batch([0, 1]).to(self.tuning.device))
        found = [find_insertion(network, images, stages, artifact) for artifact in range(images.artifacts.shape[1])]
        usable = {artifact: each.insertion for artifact, each in enumerate(found) if each.is_usable}
        if not usable:
            raise NoTransplantError(
                "No transplant carries the artifact: " + "; ".join(map(_describe, found)) + ". Use Match instead."
            )
        for artifact, each in enumerate(found):
            if artifact not in usable:
                log.warning("Artifact %d is not corrected: %s.", artifact, _describe(each))
        return usable


class _Pairing(Objective):
    def __init__(self, network: nn.Module, images: TrainingImages, insertions: dict[int, Insertion]) -> None:
        super().__init__()
        self.insertions, self.labels = list(insertions.values()), images.labels
        self.donors = [np.flatnonzero(images.artifacts[:, artifact]) for artifact in insertions]
        self.masks = [
            torch.cat([to_bytes(insertion.masks(network, batch)) for batch in images.all_batches(donors)])
            if insertion.uses_donors
            else None
            for insertion, donors in zip(self.insertions, self.donors)
        ]

    def draw(self, task_rows: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, int]:
        """Return an image with one of the artifacts for three in four task images, and a seed that says which one."""
        choice = int(rng.integers(2**31))
        which = choice % len(self.insertions)
        if self.masks[which] is None:
            return np.zeros(0, dtype=np.int64), choice
        return rng.choice(self.donors[which], _paired(len(task_rows))), choice

    def terms(self, network: nn.Module, step: Step, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the task images, and the penalty of their pairs."""
        count, paired = len(step.task_rows), _paired(len(step.task_rows))
        which = step.choice % len(self.insertions)
        donors, mask = images[:paired], images[:paired, 0]  # not used where there are no masks
        if (masks := self.masks[which]) is not None:
            places = np.searchsorted(self.donors[which], step.extra_rows)
            donors, mask = images[count:], from_bytes(masks[places]).to(images.device)
        inserted = self.insertions[which].insert(images[:paired], donors, mask, seed=step.choice)
        logits = network(torch.cat([images[:count], inserted]))
        labels = torch.as_tensor(self.labels[step.task_rows[:paired]]).to(logits.device)
        difference = (logits[count:] - logits[:paired]).square().sum() / paired
        return logits[:count], difference + task_loss(logits[count:], labels)


def _paired(count: int) -> int:
    """Return how many of the task images of a step are paired."""
    return max(1, 3 * count // 4)


def _describe(measured: Measured) -> str:
    return (
        f"a transplanted {measured.insertion.kind} covers {measured.coverage:.0%} of the distance between the groups, "
        f"and {measured.area:.0%} of the image"
    )
