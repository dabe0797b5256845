"""The head's inputs, computed once from the cache: ``phi(a)``, and the derivative of ``phi(a + e h)`` by e."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from hansfree._internal.hashing import fingerprint, fingerprint_model
from hansfree.activations.cache import Activations, at_every_position, count_positions, find_pairs
from hansfree.activations.shards import Shard, stored_arrays
from hansfree.models.surgery import Cut, Unchanged, exact_forward_mode

Live = tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Features:
    """The head's inputs for every image; arrays in memory, or memory-mapped where the activations lie on disk.

    ``values`` has one array ``(n, ...)`` per live tensor, ``tangents`` one ``(n, k, ...)`` for k directions (empty
    when none were asked for): derivatives, finite changes, or the change to the counterfactual image.
    """

    values: tuple[np.ndarray, ...]
    tangents: tuple[np.ndarray, ...]
    labels: np.ndarray
    n_positions: int
    at_layer: bool = False  # values are the layer's output, not the head's input

    def __len__(self) -> int:
        return len(self.labels)

    def _at(self, index: np.ndarray | slice) -> Iterator[tuple[np.ndarray, ...]]:
        return (tuple(array[index] for array in arrays) for arrays in (self.values, self.tangents))

    def rows(self, index: np.ndarray | slice, device: str = "cpu") -> tuple[Live, Live]:
        """Return values and tangents of some images; tangents have the directions first: ``(k, rows, ...)``."""
        values, tangents = (tuple(torch.tensor(array, device=device) for array in arrays) for arrays in self._at(index))
        return values, tuple(tangent.movedim(1, 0) for tangent in tangents)

    def part(self, rows: np.ndarray) -> Features:
        """Return some of the images, in this order; one may come more than once."""
        values, tangents = self._at(rows)
        return replace(self, values=values, tangents=tangents, labels=self.labels[rows])


@dataclass(frozen=True, eq=False)
class FeatureSpec:
    """What a head is trained on.

    Args:
        directions: ``(k, channels)``; their tangents are taken with h added at every position.
        finite_steps: store by how much phi changes when each direction is added once, in place of tangents.
        edit: applied to the layer's output first (the shift of P-ClArC and A-ClArC).
        at_layer: stop at the layer, without phi.
        pairs: ``"change"`` stores as tangent the change to the counterfactual image, 0 where there is none;
            ``"only"`` leaves images out that are in no pair.
    """

    directions: np.ndarray | None = None
    finite_steps: bool = False
    edit: nn.Module | None = None
    at_layer: bool = False
    pairs: Literal["none", "change", "only"] = "none"


def compute_features(cut: Cut, activations: Activations, spec: FeatureSpec | None = None) -> Features:
    """Stream the cache through phi; without a specification only the values are computed."""
    spec = spec or FeatureSpec()
    directions = [] if spec.directions is None else [torch.tensor(direction) for direction in spec.directions]
    phi, push = Unchanged() if spec.at_layer else cut.phi, _steps if spec.finite_steps else _tangents

    def stream() -> Iterator[Live]:
        for layer, *others in activations.stream():
            with torch.no_grad(), exact_forward_mode():  # not around the yield: it would hold for the caller too
                live = (layer if spec.edit is None else spec.edit(layer), *others)
                pushed = [push(phi, live, spread(direction, live)) for direction in directions]
                found = (*phi(*live), *(torch.stack(changes, dim=1) for changes in zip(*pushed)))
            yield found

    arrays = _keep(stream, activations, _name(phi, spec))
    count = len(arrays) // 2 if directions else len(arrays)
    positions = count_positions((1, *activations.shape))
    labels = np.asarray(activations.labels)
    features = Features(arrays[:count], arrays[count:], labels, positions, at_layer=spec.at_layer)
    if spec.pairs == "none":
        return features
    pairs = find_pairs(activations)
    if spec.pairs == "only":
        return features.part(pairs.ravel())
    return replace(features, tangents=tuple(_changes(values, pairs) for values in features.values))


def _changes(values: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return the change from each image to the other one of its pair, ``(n, 1, ...)``."""
    clean, biased = pairs.T
    changes = np.zeros((len(values), 1, *values.shape[1:]), dtype=values.dtype)
    changes[clean, 0] = values[biased] - values[clean]
    changes[biased] = -changes[clean]
    return changes


def spread(direction: Tensor, live: Live) -> Live:
    """Return the tangent of all live tensors at the layer when ``direction`` is added at every position."""
    layer, *others = live
    tangent = at_every_position(direction[None].to(layer), layer.ndim).expand_as(layer)
    return (tangent, *(torch.zeros_like(other) for other in others))


def _tangents(phi: nn.Module, live: Live, step: Live) -> Live:
    tangents: Live = torch.func.jvp(lambda *inputs: phi(*inputs), live, step)[1]
    return tangents


def _steps(phi: nn.Module, live: Live, step: Live) -> Live:
    moved = phi(*(part + change for part, change in zip(live, step)))
    return tuple(after - before for after, before in zip(moved, phi(*live)))


def _keep(stream: Callable[[], Iterator[Live]], activations: Activations, name: str) -> tuple[np.ndarray, ...]:
    """Collect the stream's arrays where the activations lie: in memory, or memory-mapped beside them."""
    if activations.folder is None:
        return tuple(torch.cat(parts).numpy() for parts in zip(*stream()))

    def parts() -> Iterator[Shard]:
        for live in stream():
            yield {f"{place:03d}": tensor for place, tensor in enumerate(live)}

    return tuple(stored_arrays(activations.folder / f"features-{name}", parts, len(activations)).values())


def _name(phi: nn.Module, spec: FeatureSpec) -> str:
    # Phi with its weights: a batch norm behind the layer is not trained, but another model's is another one.
    models = (phi, *([] if spec.edit is None else [spec.edit]))
    directions = [] if spec.directions is None else [np.asarray(spec.directions)]
    steps = "-steps" if spec.finite_steps else ""
    return fingerprint(*map(fingerprint_model, models), *directions) + steps
