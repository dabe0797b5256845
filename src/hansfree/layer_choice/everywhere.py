"""Images pass the model once, and many layers are looked at on the way: what they give, and what the output does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from hansfree.activations.positions import along, pool
from hansfree.errors import SplitError
from hansfree.selection.validator import log_odds
from hansfree.splitting import layer_orders
from hansfree.splitting.graph import Traced, eval_copy, trace
from hansfree.splitting.layout import CHANNEL_AXIS

Keep = Callable[[str, Tensor], None]
Pooled = dict[str, dict[str, np.ndarray]]  # by layer, and by pooling: (n, channels)


class EveryLayer:
    """A model in eval mode that shows what some of its layers give; the given model is not touched.

    Args:
        example: At least two images; layers whose output has no row per image, or axes of no known kind, are dropped.
    """

    def __init__(self, model: nn.Module, layers: Sequence[str], example: Tensor) -> None:
        self._device = next((tensor.device for tensor in model.parameters()), torch.device("cpu"))
        self.orders = layer_orders(model, layers, example.to(self._device))
        self._run: Callable[[Tensor, Keep], Tensor]
        try:
            self._run = _in_graph(trace(model, share=True), layers)
        except SplitError:
            self._run = _with_hooks(eval_copy(model, share=True), layers)
        shapes: dict[str, tuple[int, ...]] = {}
        with torch.no_grad():
            self._run(example.to(self._device), lambda layer, output: shapes.update({layer: tuple(output.shape)}))
        self.layers = tuple(
            layer for layer in layers if len(shapes[layer]) in CHANNEL_AXIS and shapes[layer][0] == len(example)
        )

    def pooled(self, batches: Iterable[Tensor]) -> tuple[Pooled, np.ndarray]:
        """Return the maximum and the mean over the positions at all layers, and the logits, by one pass."""
        found: dict[str, dict[str, list[Tensor]]] = {layer: {"max": [], "mean": []} for layer in self.layers}
        logits = []

        def keep(layer: str, output: Tensor) -> None:
            if layer in found:
                turned = self._turned(layer, output)
                found[layer]["max"].append(pool(turned, "max").float().cpu().clone())  # a flat one may be overwritten
                found[layer]["mean"].append(pool(turned, "mean").float().cpu().clone())

        for images in batches:
            with torch.no_grad():
                logits.append(self._run(images.to(self._device, copy=True), keep).float().cpu())
        joined = {
            layer: {name: torch.cat(parts).numpy() for name, parts in kinds.items()} for layer, kinds in found.items()
        }
        return joined, torch.cat(logits).numpy()

    def slopes(self, batches: Iterable[Tensor], shifts: Mapping[str, np.ndarray], label: int) -> dict[str, np.ndarray]:
        """Return per layer and image how far a class's log-odds move when the layer's shift is added at every position.

        To first order. One backward pass gives the gradient at all layers at once, and its product with a shift is the
        derivative that a forward-mode pass from that layer would give.
        """
        found: dict[str, list[Tensor]] = {layer: [] for layer in shifts}
        for images in batches:
            outputs: dict[str, Tensor] = {}

            def keep(layer: str, output: Tensor, outputs: dict[str, Tensor] = outputs) -> None:
                if layer in shifts:
                    outputs[layer] = output

            with torch.enable_grad():
                # Of a leaf with a gradient, as the weights may be frozen; a copy of it, as the model may overwrite it.
                leaf = images.detach().to(self._device).requires_grad_()
                odds = log_odds(self._run(leaf.clone(), keep), label)
                gradients = torch.autograd.grad(odds.sum(), list(outputs.values()), allow_unused=True)
            for (layer, output), gradient in zip(outputs.items(), gradients):
                known = torch.zeros_like(output) if gradient is None else gradient
                shift = torch.from_numpy(shifts[layer]).to(known)
                found[layer].append(along(self._turned(layer, known), shift).sum(1).detach().cpu())
        return {layer: torch.cat(parts).numpy() for layer, parts in found.items()}

    def _turned(self, layer: str, output: Tensor) -> Tensor:
        order = self.orders[layer]
        return output if order is None else output.permute(order)


def _in_graph(traced: Traced, layers: Sequence[str]) -> Callable[[Tensor, Keep], Tensor]:
    nodes: dict[fx.Node, list[str]] = {}
    for layer in layers:
        nodes.setdefault(traced.find(layer), []).append(layer)

    class Shown(fx.Interpreter):
        def __init__(self, keep: Keep) -> None:
            super().__init__(traced.root, graph=traced.graph)
            self.keep = keep

        def run_node(self, n: fx.Node) -> Any:
            result = super().run_node(n)
            for layer in nodes.get(n, ()):
                self.keep(layer, result)
            return result

    def run(images: Tensor, keep: Keep) -> Tensor:
        logits: Tensor = Shown(keep).run(images)
        return logits

    return run


def _with_hooks(own: nn.Module, layers: Sequence[str]) -> Callable[[Tensor, Keep], Tensor]:
    """Watch modules of a copy, so that the hooks need not be removed."""
    keeping: list[Keep] = []

    def watch(layer: str, output: Tensor) -> Tensor:
        keeping[-1](layer, output)
        return output.clone()  # what follows may overwrite it

    for layer in layers:
        own.get_submodule(layer).register_forward_hook(lambda _m, _a, output, layer=layer: watch(layer, output))

    def run(images: Tensor, keep: Keep) -> Tensor:
        keeping.append(keep)
        try:
            logits: Tensor = own(images)
        finally:
            keeping.pop()
        return logits

    return run
