"""Answers to what a model asks about shapes and types while it is traced.

``if images.shape[1] != self.num_channels: raise ...`` stands at the start of most Hugging Face models. Such a question
is answered from shapes alone, as images of the model's size would answer it; one about the numbers themselves
(``if x.sum() > 0``) has no answer, and the model is not traced then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.modules.conv import _ConvNd

Shape = tuple[int, ...]
Answer = TypeVar("Answer", bool, int)
_SIZES = (224, 32, 64, 150)  # in pixels: some that are padded for patches and windows, and some that are not
_NAMES = ("image_size", "img_size")  # under which models keep the one size that they take


def image_shapes(root: nn.Module) -> list[Shape]:
    """Return the shapes of batches that the model may be made for, the likeliest first."""
    channels = next((int(module.in_channels) for module in root.modules() if isinstance(module, _ConvNd)), 3)
    known = [side for module in root.modules() for name in _NAMES for side in _sides(getattr(module, name, None))]
    sizes = dict.fromkeys([*known, *((size, size) for size in _SIZES)])
    first, *others = [(2, channels, *size) for size in sizes]
    return [first, (1, *first[1:]), *others]  # the number of images must not matter either


def _sides(value: object) -> list[tuple[int, int]]:
    pair = (value, value) if isinstance(value, int) else value
    is_pair = isinstance(pair, (tuple, list)) and len(pair) == 2 and all(isinstance(side, int) for side in pair)
    return [(int(pair[0]), int(pair[1]))] if is_pair else []  # type: ignore[index]  # seen to be a pair


class ShapeAnswers:
    """What a batch of the first shape answers; and which of the other shapes would have answered otherwise."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self.first, *self.agreeing = shapes
        self.differing: list[Shape] = []
        self.is_answering = False  # then modules run on what stands for tensors, and are not traced
        self._runs: dict[Shape, fx.Interpreter] = {}

    @cached_property
    def _mode(self) -> FakeTensorMode:
        """Shapes without numbers: nothing is computed. It loads sympy, which takes a second, and few models ask."""
        return FakeTensorMode(allow_non_fake_inputs=True)

    def truth(self, root: nn.Module, node: fx.Node) -> bool:
        """Return whether the node's value is true; whatever goes wrong on the way means that there is no answer."""
        return self._answer(root, node, bool)

    def length(self, root: nn.Module, node: fx.Node) -> int:
        """Return how many items the node has, such as a shape; of a tensor that is no question of its shape alone."""
        return self._answer(root, node, _count)

    def _answer(self, root: nn.Module, node: fx.Node, read: Callable[[Any], Answer]) -> Answer:
        with self._answering():
            answer = read(self._value(root, node, self.first))
            for shape in list(self.agreeing):
                try:
                    agrees = read(self._value(root, node, shape)) == answer
                except Exception:  # the model's own code, on images that it may not be made for
                    agrees = False
                if not agrees:
                    self.agreeing.remove(shape)
                    self.differing.append(shape)
        return answer

    def _value(self, root: nn.Module, node: fx.Node, shape: Shape) -> Any:
        run = self._runs.get(shape)
        if run is None:
            run = self._runs[shape] = fx.Interpreter(root, garbage_collect_values=False, graph=node.graph)
        for needed in _needed(node):
            if needed not in run.env:
                is_images = needed.op == "placeholder"
                run.env[needed] = torch.empty(shape) if is_images else run.run_node(needed)
        return run.env[node]

    @contextmanager
    def _answering(self) -> Iterator[None]:
        self.is_answering = True
        try:
            with torch.no_grad(), self._mode:
                yield
        finally:
            self.is_answering = False


def _count(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        raise TypeError("a loop over a tensor")  # as many rounds as there are images, perhaps
    return len(value)


def _needed(node: fx.Node) -> list[fx.Node]:
    """Return what the node is computed from, and itself, in order."""
    found, open_nodes = {node}, [node]
    while open_nodes:
        for parent in open_nodes.pop().all_input_nodes:
            if parent not in found:
                found.add(parent)
                open_nodes.append(parent)
    return [one for one in node.graph.nodes if one in found]
