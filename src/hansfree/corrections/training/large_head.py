"""Train the first linear layer of a large head in the coordinates of what the training images span at its input.

Gradient descent moves that weight by sums of inputs only and is invariant to rotations, so the same steps can be taken
in an orthonormal basis of the images' values and tangents, up to rounding (docs/decisions/0023).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hansfree._internal.files import temporary_memmap
from hansfree.activations import Features
from hansfree.models.surgery import Cut

MIN_WEIGHTS = 2**22  # of a layer for which the change of coordinates pays
MAX_SHARE = 1 / 4  # of the layer's inputs: with more coordinates than that nothing is saved
BATCH = 256  # images whose features are read together


class Span:
    """An orthonormal basis of the training images' values and tangents, and the first layer's weight along it."""

    def __init__(self, name: str, weight: Tensor, features: Features) -> None:
        self.name, self._weight = name, weight.detach()
        rows = [
            values if tangents is None else torch.cat([values, tangents.flatten(0, 1)])
            for values, tangents in self._read(features)
        ]
        self._basis = _orthonormal(torch.cat(rows))
        self.start = self._weight @ self._basis
        self.outside = (self._weight.square().sum() - self.start.square().sum()).clamp_min(0)  # of the squared norm
        self._written: dict[Features, Features] = {}

    @classmethod
    def where_smaller(cls, cut: Cut, features: Features, device: str) -> Span | None:
        """Return the span where the head starts with a large linear layer and the images are few; else None."""
        entry = cut.head_parts().entry
        if entry is None or len(features.values) != 1 or features.values[0].ndim != 2:  # not a layer for every token
            return None
        name = f"{entry}.weight"
        weight = cut.head_parameters().get(name)
        if weight is None or weight.numel() < MIN_WEIGHTS:
            return None
        rows = len(features) * (1 + sum(tangents.shape[1] for tangents in features.tangents))
        return cls(name, weight.to(device), features) if rows <= MAX_SHARE * weight.shape[1] else None

    def written(self, features: Features) -> Features:
        """Return images as their coordinates, and the output of the untrained weight for what is left of them."""
        if features not in self._written:
            self._written[features] = self._write(features)
        return self._written[features]

    def whole(self, trained: Tensor) -> Tensor:
        """Return the layer's weight for one that was trained in coordinates."""
        moved: Tensor = (trained - self.start) @ self._basis.T
        return self._weight + moved

    def _write(self, features: Features) -> Features:
        """Write some images at a time; the result is on disk where the features are."""
        outputs, coordinates = self.start.shape
        (source,) = features.values

        def empty(*shape: int) -> np.ndarray:
            if isinstance(source, np.memmap) and source.filename is not None:
                return temporary_memmap(Path(source.filename).parent, shape, np.float32)
            return np.empty(shape, np.float32)

        values = tuple(empty(len(features), width) for width in (coordinates, outputs))
        directions = [tangents.shape[1] for tangents in features.tangents]
        tangents = tuple(empty(len(features), *directions, width) for width in (coordinates, outputs) if directions)
        for part, (value, along) in zip(_parts(features), self._read(features)):
            for array, found in zip(values, self._split(value)):
                array[part] = found.cpu().numpy()
            if along is not None:
                for array, found in zip(tangents, self._split(along)):
                    array[part] = found.movedim(0, 1).cpu().numpy()
        return Features(values, tangents, features.labels, features.n_positions)

    def _split(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        coordinates = rows @ self._basis
        return coordinates, rows @ self._weight.T - coordinates @ self.start.T

    def _read(self, features: Features) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Yield values ``(n, inputs)`` and tangents ``(k, n, inputs)`` of some images at a time."""
        for part in _parts(features):
            (values,), tangents = features.rows(part, str(self._weight.device))
            yield values, tangents[0] if tangents else None


def _parts(features: Features) -> Iterator[slice]:
    return (slice(start, start + BATCH) for start in range(0, len(features), BATCH))


def _orthonormal(rows: Tensor) -> Tensor:
    where = "cpu" if rows.device.type == "mps" else rows.device  # mps has no QR in many releases
    return torch.linalg.qr(rows.T.to(where)).Q.to(rows.device)  # type: ignore[no-any-return]
