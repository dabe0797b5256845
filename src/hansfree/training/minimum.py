"""The minimum of a smooth function of some tensors, by L-BFGS."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import Tensor

from hansfree.errors import OptionError

_STEPS = 500  # of a solver that needs some dozens


def check_double(device: str) -> None:
    """Refuse a device without float64, in which minima are looked for."""
    if torch.device(device).type == "mps":
        raise OptionError(
            "Heads at their minimum are solved in float64, which mps does not have: use the device 'cpu'."
        )


def minimise(value: Callable[[], Tensor], tensors: Collection[Tensor], *, flat: float) -> float:
    """Move the tensors, leaves that ask for gradients, to where ``value`` is least; return the slope that is left.

    Args:
        flat: The largest slope that counts as none.
    """
    solver = torch.optim.LBFGS(
        tensors,
        max_iter=_STEPS,
        history_size=20,
        tolerance_grad=flat,
        tolerance_change=flat / 3e4,
        line_search_fn="strong_wolfe",
    )

    def total() -> Tensor:
        solver.zero_grad()
        found = value()
        found.backward()  # type: ignore[no-untyped-call]
        return found

    solver.step(total)  # type: ignore[no-untyped-call]
    total()  # the line search may have looked elsewhere last
    return max((float(tensor.grad.abs().max()) for tensor in tensors if tensor.grad is not None), default=0.0)
