"""The head's first linear layer in fewer coordinates: those of what the training images span at its input.

Gradient descent moves that layer's weight by sums of its inputs. What is orthogonal to all of them it never touches,
and it does not care how the rest is rotated. So values and tangents are written in an orthonormal basis of their span,
once, and the same steps are taken there: VGG-16's 25,088 inputs become twice as many as there are images. The steps are
those of the paper's recipe up to rounding (docs/decisions/0031).

Many images span everything, but lie near a few directions, and gradient descent moves a weight along those first. So
where it is asked for, the basis is that of their leading directions (docs/decisions/0035).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hansfree._internal.files import make_nameless
from hansfree.activations import Features
from hansfree.corrections.training.config import FineTuning
from hansfree.models.surgery import Split

_LARGE = 2**22  # weights of a layer for which the change of coordinates pays
_AT_ONCE = 256  # images whose features are read together
_SHARE = 4  # and there must be so many times fewer coordinates than the layer has inputs
_SWEEPS = 2  # over all images, to turn a basis of some of them into one of the leading directions of all


class Span:
    """An orthonormal basis of the training images' values and tangents, and the layer's weight along it.

    Args:
        name: The weight of the head's first layer, by its name in the model.
        weight: What it is before training, ``(outputs, inputs)``.
        features: What the head is trained on.
        leading: How many directions the basis has; None for all that there are.
    """

    def __init__(self, name: str, weight: Tensor, features: Features, *, leading: int | None = None) -> None:
        self.name, self._weight = name, weight.detach()
        device = weight.device
        self._basis = _find_all(features, device) if leading is None else _find_leading(features, device, leading)
        self.start = self._weight @ self._basis
        self._written: dict[Features, Features] = {}

    @classmethod
    def where_smaller(cls, cut: Split, features: Features, tuning: FineTuning) -> Span | None:
        """Return the span, or its leading directions, where the head starts with a large linear layer."""
        entry = cut.head_parts().entry
        if entry is None or len(features.values) != 1 or features.values[0].ndim != 2:  # not a layer for every token
            return None
        name = f"{entry}.weight"
        weight = cut.head_parameters().get(name)
        if weight is None or weight.numel() < _LARGE:
            return None
        most = weight.shape[1] // _SHARE
        rows = len(features) * (1 + sum(tangents.shape[1] for tangents in features.tangents))
        if rows <= most and (tuning.leading == "all" or rows <= 2 * tuning.leading):
            return cls(name, weight.to(tuning.device), features)
        if tuning.leading == "all" or tuning.leading > min(most, rows):
            return None
        return cls(name, weight.to(tuning.device), features, leading=tuning.leading)

    def written(self, features: Features) -> Features:
        """Return images by their coordinates and by what the untrained weight makes of the rest of them."""
        if features not in self._written:
            self._written[features] = self._write(features)
        return self._written[features]

    def whole(self, trained: Tensor) -> Tensor:
        """Return the layer's weight for one that was trained in coordinates."""
        moved: Tensor = (trained - self.start) @ self._basis.T
        return self._weight + moved

    def _write(self, features: Features) -> Features:
        """Write some at a time: each has 25,088 numbers before and fewer after; on disk where they are on disk."""
        outputs, coordinates = self.start.shape
        (source,) = features.values

        def room(*shape: int) -> np.ndarray:
            if isinstance(source, np.memmap) and source.filename is not None:
                return make_nameless(Path(source.filename).parent, shape, np.float32)
            return np.empty(shape, np.float32)

        values = tuple(room(len(features), width) for width in (coordinates, outputs))
        directions = [tangents.shape[1] for tangents in features.tangents]
        tangents = tuple(room(len(features), *directions, width) for width in (coordinates, outputs) if directions)
        for part, (value, along) in zip(_parts(features), _read(features, self._weight.device)):
            for array, found in zip(values, self._split(value)):
                array[part] = found.cpu().numpy()
            if along is not None:
                for array, found in zip(tangents, self._split(along)):
                    array[part] = found.movedim(0, 1).cpu().numpy()
        return Features(values, tangents, features.labels, features.n_positions)

    def _split(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        coordinates = rows @ self._basis
        return coordinates, rows @ self._weight.T - coordinates @ self.start.T


def _find_all(features: Features, device: torch.device) -> Tensor:
    return _orthonormal(torch.cat([_stack(*found) for found in _read(features, device)]))


def _find_leading(features: Features, device: torch.device, leading: int) -> Tensor:
    """Return ``(inputs, leading)``, by subspace iteration: from some of the images to directions of all."""
    start, scale = _start(features, device, leading)
    basis = _orthonormal(start)
    for _ in range(_SWEEPS):
        image = torch.zeros_like(basis)
        for values, tangents in _read(features, device):
            rows = _stack(values, tangents, scale)
            image += rows.T @ (rows @ basis)
        basis = _orthonormal(image.T)
    return basis


def _start(features: Features, device: torch.device, leading: int) -> tuple[Tensor, float]:
    """Return so many rows, half of them tangents, and by what tangents are multiplied to count as much as values.

    They count the same, however large each are: the penalty's gradient goes along tangents.
    """
    images = leading if not features.tangents else -(-leading // 2)
    some = np.linspace(0, len(features) - 1, min(images, len(features))).astype(int)
    values, tangents = _rows(features, some, device)
    if tangents is None:
        return values, 1.0
    scale = float(values.norm() / tangents.norm()) if tangents.any() else 1.0
    step = max(1, tangents.shape[0] * len(values) // max(1, leading - len(values)))  # some of every direction
    along = scale * tangents.flatten(0, 1)[::step]
    return torch.cat([values, along])[:leading], scale


def _orthonormal(rows: Tensor) -> Tensor:
    where = "cpu" if rows.device.type == "mps" else rows.device  # which has no QR in many releases
    return torch.linalg.qr(rows.T.to(where)).Q.to(rows.device)  # type: ignore[no-any-return]


def _parts(features: Features) -> Iterator[slice]:
    return (slice(start, start + _AT_ONCE) for start in range(0, len(features), _AT_ONCE))


def _read(features: Features, device: torch.device) -> Iterator[tuple[Tensor, Tensor | None]]:
    return (_rows(features, part, device) for part in _parts(features))


def _rows(features: Features, index: np.ndarray | slice, device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Return values ``(n, inputs)`` and tangents ``(k, n, inputs)`` of some images."""
    (values,), tangents = features.rows(index, str(device))
    return values, tangents[0] if tangents else None


def _stack(values: Tensor, tangents: Tensor | None, scale: float = 1.0) -> Tensor:
    return values if tangents is None else torch.cat([values, scale * tangents.flatten(0, 1)])
