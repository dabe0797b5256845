"""What follows a module in a model that cannot be traced: found in the graph that autograd records of one run."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

from hansfree.errors import SplitError


class AutogradFlow:
    """One run of a model, with a mark in autograd's graph behind every module that returns a tensor.

    Args:
        model: A copy of its own: all its parameters will want gradients.
    """

    def __init__(self, model: nn.Module, example: Tensor) -> None:
        self.model, self.kind = model, type(model).__name__
        for parameter in model.parameters():
            parameter.requires_grad_(parameter.is_floating_point())
        self._marks: dict[str, Any] = {}
        self._images = example.clone().requires_grad_()
        handles = [
            module.register_forward_hook(lambda _m, _a, output, path=path: self._mark(path, output))
            for path, module in model.named_modules()
            if path
        ]
        try:
            with torch.enable_grad():
                self._logits = model(self._images.clone())
        finally:
            for handle in handles:
                handle.remove()
        if not isinstance(self._logits, Tensor):
            raise SplitError(
                f"{self.kind} returns a {type(self._logits).__name__}, not one tensor of logits. Wrap it in a module."
            )

    def _mark(self, path: str, output: Any) -> Any:
        if not isinstance(output, Tensor):
            self._marks[path] = type(output).__name__
            return output
        marked = output.clone()  # a node of its own, also where a container returns what its last module did
        self._marks[path] = marked.grad_fn
        return marked

    def parameters_after(self, layer: str) -> dict[str, int]:
        """Return the parameters whose first use together with activations depends on the layer, and when that is.

        A gradient alone would not tell: beside a skip connection, parameters before the layer have one too.

        Args:
            layer: A module that is called once.
        """
        mark = self._marks.get(layer)
        if isinstance(mark, str):
            raise SplitError(f"{layer!r} returns a {mark}, not a tensor. Choose another layer.")
        below = _below(self._logits.grad_fn, stop=mark)
        if mark is None or mark not in below:
            raise SplitError(f"The output of {self.kind} does not depend on {layer!r}. Choose another layer.")
        users = defaultdict(list)
        for node in below:
            for child, _ in () if node is mark else node.next_functions:
                users[child].append(node)
        accumulators = {id(node.variable): node for node in below if hasattr(node, "variable")}
        depends = _above(users, mark)
        mixed = depends | _above(users, accumulators.get(id(self._images)))
        before = {id(node.variable) for node in _below(mark) if hasattr(node, "variable")}
        after = {}
        for name, parameter in self.model.named_parameters():
            uses = _first(users, accumulators.get(id(parameter)), mixed)
            if not uses & depends:
                continue
            if uses - depends or id(parameter) in before:
                raise SplitError(
                    f"{name!r} of {self.kind} is used before and after {layer!r}. Choose an earlier layer."
                )
            after[name] = max(node._sequence_nr() for node in uses)
        return after


def _below(root: Any, *, stop: Any = None) -> set[Any]:
    """Return all nodes of the autograd graph under ``root``, and not beyond ``stop``."""
    found, open_nodes = set(), [root] if root is not None else []
    while open_nodes:
        node = open_nodes.pop()
        if node not in found:
            found.add(node)
            if node is not stop:
                open_nodes.extend(child for child, _ in node.next_functions if child is not None)
    return found


def _above(users: dict[Any, list[Any]], start: Any) -> set[Any]:
    """Return ``start`` and every autograd node that uses it, at any distance; nothing for None."""
    found, open_nodes = set(), [start] if start is not None else []
    while open_nodes:
        node = open_nodes.pop()
        if node not in found:
            found.add(node)
            open_nodes.extend(users[node])
    return found


def _first(users: dict[Any, list[Any]], start: Any, wanted: set[Any]) -> set[Any]:
    """Return the nearest users of ``start`` that are in ``wanted``, beyond which the walk does not go."""
    found, seen, open_nodes = set(), set(), [start] if start is not None else []
    while open_nodes:
        for node in users[open_nodes.pop()]:
            if node in wanted:
                found.add(node)
            elif node not in seen:
                seen.add(node)
                open_nodes.append(node)
    return found
