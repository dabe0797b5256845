"""Where a projection stands in a model: what its weights do not say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from hansfree.activations import Pooling
from hansfree.errors import OptionError
from hansfree.splitting.inserted import PROJECTION, AppliedAfter, EditedForward
from hansfree.splitting.orders import Order


@dataclass(frozen=True)
class Place:
    """The layer, from what the score is taken, and the order of axes that the projection expects (None: as it is)."""

    layer: str
    pooling: Pooling
    order: Order | None

    def to_metadata(self) -> dict[str, str]:
        """Return texts, which is all that the head of a safetensors file takes."""
        order = "" if self.order is None else " ".join(map(str, self.order))
        return {"layer": self.layer, "pooling": self.pooling, "order": order}

    @classmethod
    def from_metadata(cls, about: Mapping[str, str]) -> Place | None:
        """Return what the head of a file says; None where it says nothing."""
        if "layer" not in about or "pooling" not in about:
            return None
        order = tuple(map(int, about.get("order", "").split())) or None
        return cls(about["layer"], about["pooling"], order)  # type: ignore[arg-type]  # the reader checks the word


def find_place(model: nn.Module) -> Place:
    """Return where a projection was inserted into a model."""
    pooling = getattr(getattr(model, PROJECTION, None), "pooling", None)
    forward = model.__dict__.get("forward")
    if pooling is not None and isinstance(forward, EditedForward):
        return Place(_edited_layer(model, forward), pooling, _edited_order(forward))
    for path, module in model.named_modules():
        for hook in module._forward_hooks.values():
            if pooling is not None and isinstance(hook, AppliedAfter):
                return Place(str(path), pooling, hook.order)
    raise OptionError(f"{type(model).__name__} has no inserted projection.")


def _edited_layer(model: nn.Module, forward: EditedForward) -> str:
    names = [name for name, node in forward.names.items() if node == forward.names[PROJECTION]]
    modules = dict(model.named_modules())
    # A graph is edited where the layer is no module; a block that ends there is only another name for it.
    return str(next((name for name in names if name not in modules), names[0]))


def _edited_order(forward: EditedForward) -> Order | None:
    """Return the order into which the graph turns the axes for the projection; it then turns them back behind it."""
    call: Any = next(n for n in forward.graph.nodes if n.op == "call_module" and n.target == PROJECTION)
    return None if call.name == forward.names[PROJECTION] else tuple(call.args[0].args[1])
