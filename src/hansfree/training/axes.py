"""Axes along which a linear head has about the same curvature: dozens of steps instead of hundreds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hansfree.activations import Live

Tensors = dict[str, Tensor]
Change = Callable[[Tensors], Tensors]  # from what the solver moves to what the weights move by

_SURE = 0.25  # what a probability of one half adds to the curvature of the loss


@dataclass(frozen=True, eq=False)
class Axes:
    """Along each of the ``directions`` the loss curves by about 1, and the penalty by the strength times a size."""

    weight: str
    bias: str
    center: Tensor
    directions: Tensor  # one per column
    coordinates: Tensor  # what a weight is multiplied by to be written along them
    sizes: Tensor

    @classmethod
    def of(cls, entry: str, values: Tensor, tangents: Live, shares: Tensor, *, anchor: float, has_bias: bool) -> Axes:
        """Find them for images whose shares sum to 1, and L2 of the weight ``anchor``.

        Args:
            entry: The linear layer.
            tangents: ``(k, n, inputs)``; none where nothing is penalised.
        """
        center = shares @ values if has_bias else torch.zeros_like(values[0])
        loss = _SURE * (shares[:, None] * (values - center)).T @ (values - center)
        loss.diagonal().add_(2 * anchor)
        penalty = torch.zeros_like(loss)
        for tangent in tangents:
            rows = tangent.flatten(0, 1)
            penalty += 2 * rows.T @ rows / len(values)
        root = torch.linalg.cholesky(loss)
        half = torch.linalg.solve_triangular(root, penalty, upper=False)
        sizes, vectors = torch.linalg.eigh(torch.linalg.solve_triangular(root, half.T, upper=False))
        directions = torch.linalg.solve_triangular(root.T, vectors, upper=True)
        return cls(f"{entry}.weight", f"{entry}.bias", center, directions, root @ vectors, sizes.clamp(min=0))

    def scaled(self, strength: float) -> Change:
        """Return what turns steps along the axes into changes of the weights."""
        lengths = self._lengths(strength)

        def change(moved: Tensors) -> Tensors:
            by = {self.weight: (moved[self.weight] * lengths) @ self.directions.T}
            return by | {self.bias: moved[self.bias] - by[self.weight] @ self.center} if self.bias in moved else by

        return change

    def penalty(self, begin: Tensors, outputs: Tensor, strength: float) -> Callable[[Tensors], Tensor]:
        """Return the strength times the mean squared derivative of some outputs, as a function of the steps.

        Along the axes it is a sum of squares, and no image has to be looked at.

        Args:
            begin: The weights before the first step.
            outputs: ``(classes, outputs)``, what the outputs take of each logit.
        """
        first, lengths = begin[self.weight] @ self.coordinates, self._lengths(strength)

        def value(moved: Tensors) -> Tensor:
            along = outputs.T @ (first + moved[self.weight] * lengths)
            return strength / 2 * (along.square() * self.sizes).sum()

        return value

    def _lengths(self, strength: float) -> Tensor:
        return (1 + strength * self.sizes).rsqrt()
