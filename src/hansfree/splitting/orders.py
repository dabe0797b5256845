"""Orders of axes, as ``Tensor.permute`` takes them."""

from __future__ import annotations

Order = tuple[int, ...]


def inverse(order: Order) -> Order:
    """Return the order that undoes an order."""
    return tuple(order.index(axis) for axis in range(len(order)))
