"""A module put into a model from outside, in a form that survives ``deepcopy``, pickling and ``.to``."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, fx, nn

PROJECTION = "hansfree_projection"


class AppliedAfter:
    """A forward hook that sends a module's output through another module.

    An object and not a closure: a copy of the model then holds a hook with the copy's own inserted module.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, _module: nn.Module, _args: Any, output: Tensor) -> Any:
        """Return the edited output."""
        return self.module(output)


class EditedForward:
    """The ``forward`` of a model instance that runs a graph over the model's own modules and parameters."""

    def __init__(
        self, model: nn.Module, graph: fx.Graph, names: dict[str, str], calls: dict[str, tuple[str, ...]]
    ) -> None:
        self.model = model
        self.graph = graph
        self.names = names  # layer -> name of the node: nodes themselves do not survive a copy of the graph
        self.calls = calls

    def __call__(self, *inputs: Any) -> Any:
        """Run the graph."""
        return fx.Interpreter(self.model, graph=self.graph).run(*inputs)


def take_out(model: nn.Module) -> tuple[nn.Module, nn.Module | None]:
    """Return a copy of the model as it was before the insertion, and the inserted module (None where there is none)."""
    plain = copy.deepcopy(model)
    module = getattr(plain, PROJECTION, None)
    if module is None:
        return plain, None
    if isinstance(plain.__dict__.get("forward"), EditedForward):
        del plain.__dict__["forward"]
    remove_hooks(plain)
    delattr(plain, PROJECTION)
    return plain, module


def remove_hooks(model: nn.Module) -> dict[str, nn.Module]:
    """Remove the hooks of inserted modules; return these modules by the path of the module that they edited."""
    found = {}
    for path, module in model.named_modules():
        for key, hook in list(module._forward_hooks.items()):
            if isinstance(hook, AppliedAfter):
                del module._forward_hooks[key]
                found[path] = hook.module
    return found
