"""Several artifacts at once, each tied to a class of its own: one biased model then serves to study them all."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hansfree.artifacts import Artifact
from hansfree.datasets.base import IMAGENET, ExampleSet, ImageSource, Normalize
from hansfree.datasets.stamped import Stamped
from hansfree.errors import OptionError


class Shortcuts(ExampleSet):
    """The images of ``source``, with an artifact per class; bits and masks speak of one of the artifacts.

    Args:
        artifacts: by the class that each leaks into.
        speaks_of: the class whose artifact ``has_artifact`` and the masks tell; the others are just part of the
            pictures.
        share: part of each of these classes that carries its artifact.
    """

    def __init__(
        self,
        source: ImageSource,
        artifacts: Mapping[int, Artifact],
        *,
        speaks_of: int,
        share: float,
        seed: int = 0,
        transform: Normalize = IMAGENET,
    ) -> None:
        if speaks_of not in artifacts:
            raise OptionError(f"Class {speaks_of} has no artifact to speak of; known: {sorted(artifacts)}.")
        self._parts = {
            label: Stamped(source, artifact, share=share, only_class=label, seed=seed)
            for label, artifact in artifacts.items()
        }
        self.speaks_of, self.transform = speaks_of, transform
        self.ids, self.labels, self.class_names = source.ids, source.labels, source.class_names
        self.has_artifact = self._parts[speaks_of].has_artifact
        self.has_any = np.any([part.has_artifact for part in self._parts.values()], axis=0)  # of all the artifacts

    @property
    def fingerprint(self) -> str:
        """Everything that the examples depend on."""
        return f"{self.pictures}, speaks_of={self.speaks_of}"

    @property
    def pictures(self) -> str:
        """The same whichever artifact the set speaks of: one biased model serves for all of them."""
        parts = ", ".join(part.fingerprint for part in self._parts.values())
        return f"Shortcuts({parts}, {self.transform!r})"

    def pixels(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the uint8 image, and the mask of the artifact that the set speaks of."""
        label = int(self.labels[index])
        image, mask = self._parts.get(label, self._parts[self.speaks_of]).pixels(index)
        return image, mask if label == self.speaks_of else np.zeros_like(mask)
