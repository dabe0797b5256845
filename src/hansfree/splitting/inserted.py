"""A module put into a model from outside, in a form that survives ``deepcopy``, pickling and ``.to``."""

from __future__ import annotations

import copy
import inspect
from typing import Any

from torch import Tensor, fx, nn

from hansfree.splitting.orders import Order, inverse

PROJECTION = "hansfree_projection"


class AppliedAfter:
    """A forward hook that sends a module's output through another module.

    An object and not a closure: a copy of the model then holds a hook with the copy's own inserted module.

    Args:
        order: of the axes that the inserted module expects; None: as the model has them.
    """

    def __init__(self, module: nn.Module, order: Order | None = None) -> None:
        self.module, self.order = module, order

    def __call__(self, _module: nn.Module, _args: Any, output: Tensor) -> Any:
        """Return the edited output."""
        return self.edit(output)

    def edit(self, output: Any) -> Any:
        """Return the edited output, of a tensor or of what stands for one in a trace."""
        if self.order is None:
            return self.module(output)
        return self.module(output.permute(self.order)).permute(inverse(self.order)).contiguous()


class EditedForward:
    """The ``forward`` of a model instance that runs a graph over the model's own modules and parameters."""

    def __init__(
        self,
        model: nn.Module,
        graph: fx.Graph,
        names: dict[str, str],
        calls: dict[str, tuple[str, ...]],
        returned: type[dict[str, Any]] | None = None,
    ) -> None:
        self.model = model
        self.graph = graph
        self.names = names  # layer -> name of the node: nodes themselves do not survive a copy of the graph
        self.calls = calls
        self.returned = returned  # the class of the output object, where the model returns one
        self.before = model.__dict__.get("forward")  # what the instance ran until now, where it was not its class's

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run the graph; the images may be given by name, as the processors of Hugging Face do."""
        _, images, *_ = (*inspect.signature(type(self.model).forward).parameters, "images")
        if unknown := named.keys() - {images}:
            raise TypeError(f"A corrected {type(self.model).__name__} takes images only, not {', '.join(unknown)}.")
        result = fx.Interpreter(self.model, graph=self.graph).run(*inputs, *named.values())
        return result if self.returned is None else self.returned(**result)


def take_out(model: nn.Module) -> tuple[nn.Module, nn.Module | None]:
    """Return a copy of the model as it was before the insertion, and the inserted module (None where there is none)."""
    plain = copy.deepcopy(model)
    module = getattr(plain, PROJECTION, None)
    if module is None:
        return plain, None
    forward = plain.__dict__.get("forward")
    if isinstance(forward, EditedForward):
        del plain.__dict__["forward"]
        if forward.before is not None:
            plain.__dict__["forward"] = forward.before
    remove_hooks(plain)
    delattr(plain, PROJECTION)
    return plain, module


def remove_hooks(model: nn.Module) -> dict[str, AppliedAfter]:
    """Remove the hooks of inserted modules; return them by the path of the module that they edited."""
    found = {}
    for path, module in model.named_modules():
        for key, hook in list(module._forward_hooks.items()):
            if isinstance(hook, AppliedAfter):
                del module._forward_hooks[key]
                found[path] = hook
    return found
