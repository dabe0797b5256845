"""The head's first linear layer in fewer coordinates: those of what the training images span at its input.

Gradient descent moves that layer's weight by sums of its inputs. What is orthogonal to all of them it never touches,
and it does not care how the rest is rotated. So values and tangents are written in an orthonormal basis of their span,
once, and the same steps are taken there: VGG-16's 25,088 inputs become twice as many as there are images. The steps are
those of the paper's recipe up to rounding (docs/decisions/0031).
"""

from __future__ import annotations

import torch
from torch import Tensor

from hansfree.activations import Features, Live
from hansfree.splitting import Split

_LARGE = 2**22  # weights of a layer for which the change of coordinates pays
_AT_ONCE = 256  # images whose features are read together
_SHARE = 4  # and the span must have so many times fewer coordinates than the layer has inputs


class Span:
    """An orthonormal basis of the training images' values and tangents, and the layer's weight along it.

    Args:
        name: The weight of the head's first layer, by its name in the model.
        weight: What it is before training, ``(outputs, inputs)``.
        features: What the head is trained on.
    """

    def __init__(self, name: str, weight: Tensor, features: Features) -> None:
        self.name, self._weight = name, weight.detach()
        (values,), tangents = features.rows(slice(None))
        rows = torch.cat([values, *(tangent.flatten(0, 1) for tangent in tangents)])
        basis, triangle = torch.linalg.qr(rows.T)  # (inputs, r), (r, rows)
        self._basis = basis.to(weight.device)
        self.start = self._weight @ self._basis
        own, *along = triangle.T.contiguous().split(len(values))
        self.features = Features(
            (own.numpy(),), (torch.stack(along, dim=1).numpy(),) if along else (), features.labels, features.n_positions
        )
        self._known: dict[Features, tuple[Live, Live]] = {}

    @classmethod
    def where_smaller(cls, cut: Split, features: Features, device: str) -> Span | None:
        """Return the span where the head starts with a large linear layer, and few images speak of it."""
        entry = cut.head_parts().entry
        if entry is None or len(features.values) != 1 or features.values[0].ndim != 2:  # not a layer for every token
            return None
        name = f"{entry}.weight"
        weight = cut.head_parameters().get(name)
        directions = 1 + sum(tangents.shape[1] for tangents in features.tangents)
        if weight is None or weight.numel() < _LARGE or _SHARE * directions * len(features) > weight.shape[1]:
            return None
        return cls(name, weight.to(device), features)

    def rows(self, features: Features, index: slice) -> tuple[Live, Live]:
        """Return other images by coordinates and what the untrained weight makes of the rest of them."""
        if features not in self._known:
            self._known[features] = self._read(features)
        values, tangents = self._known[features]
        return tuple(part[index] for part in values), tuple(part[:, index] for part in tangents)

    def whole(self, trained: Tensor) -> Tensor:
        """Return the layer's weight for one that was trained in coordinates."""
        moved: Tensor = (trained - self.start) @ self._basis.T
        return self._weight + moved

    def _read(self, features: Features) -> tuple[Live, Live]:
        """Write images in coordinates, some at a time: each has 25,088 numbers before and few after."""
        values, tangents = [], []
        for start in range(0, len(features), _AT_ONCE):
            (value,), along = features.rows(slice(start, start + _AT_ONCE), str(self._weight.device))
            values.append(self._split(value))
            tangents += [self._split(tangent) for tangent in along]
        return tuple(map(torch.cat, zip(*values))), tuple(torch.cat(each, dim=1) for each in zip(*tangents))

    def _split(self, rows: Tensor) -> Live:
        coordinates = rows @ self._basis
        return coordinates, (rows - coordinates @ self._basis.T) @ self._weight.T
