"""Some examples of a set: what a correction sees of what a model was trained on."""

from __future__ import annotations

import numpy as np

from hansfree.datasets.base import ExampleSet
from hansfree.errors import DataError
from hansfree.fingerprints import fingerprint


class Part(ExampleSet):
    """The examples of ``dataset`` in ``rows``, in that order, with the same pixels, artifacts and ids.

    Example:
        >>> from hansfree.artifacts import Timestamp
        >>> from hansfree.datasets import Part, Stamped, SyntheticLesions
        >>> whole = Stamped(SyntheticLesions(80), Timestamp(), share=0.5, only_class=0)
        >>> len(Part(whole, range(20)))
        20
    """

    def __init__(self, dataset: ExampleSet, rows: range | np.ndarray) -> None:
        chosen = np.asarray(rows, dtype=np.int64)
        if len(chosen) and (chosen.min() < 0 or chosen.max() >= len(dataset)):
            raise DataError(f"Rows run from {chosen.min()} to {chosen.max()}, but the set has {len(dataset)} examples.")
        self.dataset, self.rows = dataset, chosen
        self.labels, self.ids, self.has_artifact = (
            values[chosen] for values in (dataset.labels, dataset.ids, dataset.has_artifact)
        )
        self.is_relabelled = dataset.is_relabelled[chosen]
        self.class_names, self.transform = dataset.class_names, dataset.transform

    @property
    def fingerprint(self) -> str:
        """Everything that the examples depend on."""
        return f"Part({self.dataset.fingerprint}, {fingerprint(self.rows)})"

    @property
    def pictures(self) -> str:
        """Everything that images and labels depend on."""
        return f"Part({self.dataset.pictures}, {fingerprint(self.rows)})"

    def pixels(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the uint8 image and the artifact's mask."""
        return self.dataset.pixels(int(self.rows[index]))
