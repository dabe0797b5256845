"""The stages of a network, and their outputs pooled to one number per channel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hansfree.activations import channel_axis, pool
from hansfree.errors import SplitError
from hansfree.models.surgery import AxisOrder, layer_orders, run_recorded


@dataclass(frozen=True)
class Stage:
    """A module whose output is matched; ``order`` puts its axes into hansfree's layout where they stand otherwise."""

    name: str
    order: AxisOrder | None

    def arranged(self, output: Tensor) -> Tensor:
        """Return the output as maps (n, channels, height, width) or tokens (n, tokens, channels)."""
        return output if self.order is None else output.permute(self.order)


COUNT = 4  # stages that are matched


def find_stages(model: nn.Module, example: Tensor) -> tuple[Stage, ...]:
    """Return the stages, first to last: the last module output at each resolution, as in a ResNet's four layers.

    A network that keeps one resolution (ViT) is divided evenly by its blocks. The modules are found by one forward
    pass in eval mode, so the network need not be traceable.
    """
    outputs = _module_outputs(model, example)
    by_resolution: dict[int, list[str]] = {}
    for name, positions in outputs:
        by_resolution.setdefault(positions, []).append(name)
    runs = [names for positions, names in by_resolution.items() if positions > 1]
    if not runs:
        raise SplitError(f"{type(model).__name__} has no module with maps or tokens whose features could be matched.")
    chosen = [names[-1] for names in runs][-COUNT:]
    if len(chosen) < COUNT:
        longest = max(runs, key=len)
        blocks = [name for name in longest if _is_block(model, name)] or longest
        places = np.linspace(0, len(blocks) - 1, COUNT - len(chosen) + 2).round().astype(int)[1:-1]
        chosen += [blocks[place] for place in places]
    chosen = [name for name, _ in outputs if name in chosen]
    orders = layer_orders(model, chosen, example)
    return tuple(Stage(name, orders[name]) for name in chosen)


def pooled_output(stage: Stage, output: Tensor) -> Tensor:
    """Return the mean and the maximum over the positions, ``(n, 2, channels)``."""
    arranged = stage.arranged(output)
    if arranged.dtype.itemsize < 4:  # small differences of means would be lost
        arranged = arranged.float()
    return torch.stack([pool(arranged, "mean"), pool(arranged, "max")], dim=1)


def whole_output(stage: Stage, output: Tensor) -> Tensor:
    """Return the output, channels last."""
    arranged = stage.arranged(output)
    return arranged.movedim(channel_axis(arranged.ndim), -1)


@contextmanager
def recorded(
    network: nn.Module, stages: Iterable[Stage], read: Callable[[Stage, Tensor], Tensor] = pooled_output
) -> Iterator[dict[str, Tensor]]:
    """Fill a dictionary with what is read of the stages' outputs in every forward pass of the block."""
    found: dict[str, Tensor] = {}

    def keep(stage: Stage, output: Any) -> None:
        found[stage.name] = read(stage, _tensor(output).clone())  # DenseNet overwrites it

    handles = [
        network.get_submodule(stage.name).register_forward_hook(
            lambda _module, _args, output, stage=stage: keep(stage, output)
        )
        for stage in stages
    ]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def collect_pooled(network: nn.Module, batches: Iterable[Tensor], stages: Sequence[Stage]) -> list[Tensor]:
    """Return the pooled outputs of each stage for all images: ``(images, poolings, channels)``."""
    parts: list[list[Tensor]] = [[] for _ in stages]
    device = next(network.parameters()).device
    with recorded(network, stages) as pooled:
        for batch in batches:
            network(batch.to(device))
            for part, stage in zip(parts, stages):
                part.append(pooled[stage.name])
    return [torch.cat(part) for part in parts]


def _module_outputs(model: nn.Module, example: Tensor) -> list[tuple[str, int]]:
    """Return the modules that are called once and give maps or tokens, in the order of their outputs."""
    order, outputs = run_recorded(model, example)
    found = []
    for name, calls in Counter(order).items():
        # Dropout repeats another module's output; on attention weights it would look like a map.
        is_copy = isinstance(model.get_submodule(name), nn.Dropout | nn.Identity | nn.Softmax)
        output = _tensor(outputs[name])
        if not name or calls > 1 or is_copy or not isinstance(output, Tensor):
            continue
        if output.ndim in (3, 4) and len(output) == len(example):
            positions = _count_positions(output, example)
            found += [] if positions is None else [(name, positions)]
    return found


def _count_positions(output: Tensor, images: Tensor) -> int | None:
    """Return the number of positions; None for a map without the shape of the images, as the queries of attention.

    Maps may have their channels last (Swin), so height and width are the axes with the images' aspect ratio.
    """
    if output.ndim == 3:
        return output.shape[1]
    height, width = images.shape[2:]
    for rows, columns in (output.shape[2:], output.shape[1:3]):
        if abs(rows * width - columns * height) < max(height, width):  # to within one row or column
            return int(rows * columns)
    return None


def _is_block(model: nn.Module, name: str) -> bool:
    parent = model.get_submodule(name.rpartition(".")[0])
    return isinstance(parent, nn.ModuleList | nn.Sequential) and any(model.get_submodule(name).children())


def _tensor(output: Any) -> Any:
    return output[0] if isinstance(output, tuple | list) and output else output
