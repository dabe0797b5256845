"""Recommend the layer to correct a model at, by the rule behind the layers of the paper.

Back from the logits over all that is no feature yet (the classifier, pooling, the final norm, the activation) to the
last place that has positions and whose output still carries a sign: a sum, a convolution, a batch norm.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from hansfree.errors import SplitError
from hansfree.models.surgery import Layer, list_layers
from hansfree.models.surgery.graph import Traced, device_of, eval_copy, trace
from hansfree.models.surgery.partition import output_node


@dataclass(frozen=True)
class Recommendation:
    """A layer, and in one sentence why."""

    layer: str
    reason: str


def recommend_layer(model: nn.Module, example: Tensor) -> Recommendation:
    """Return the layer before the activation and pooling that lead to the classifier; for the paper's models, its own.

    Args:
        example: A batch of images of the size that the model is used with.

    Examples:
        >>> model = nn.Sequential(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.MaxPool2d(12), nn.Flatten(), nn.Linear(4, 2))
        >>> recommend_layer(model, torch.rand(2, 3, 16, 16)).layer
        '0'
    """
    try:
        traced = trace(model, share=True)
    except SplitError:
        return _among_modules(model, example)
    layers = _usable(model, example)
    if not layers:
        raise SplitError(f"No trainable parameter of {type(model).__name__} follows any layer: it cannot be corrected.")
    return _in_graph(traced, layers) or _last_feature(traced, layers)


def feature_layers(model: nn.Module, example: Tensor) -> list[Layer]:
    """Return the usable layers that hold features of their own: each output once, by its most specific name.

    Activations, pooling, dropout and norms of single positions are left out: they show what the layer before them does,
    behind a non-linearity that hides the sign. So is what only a batch norm reads: behind it, it is the same in scale.
    """
    layers = _usable(model, example)
    kept: set[Any]
    try:
        traced = trace(model, share=True)
    except SplitError:
        calls = _Calls(model, example)
        modules = calls.modules
        outputs: dict[Any, list[str]] = _grouped(layers, lambda name: calls.makers_of(calls.outputs[name])[0])
        kept = {inner for inner in outputs if not _is_simple(modules[inner])}
    else:
        modules = dict(traced.root.named_modules())
        outputs = _grouped(layers, traced.layers.__getitem__)

        def is_normed(node: fx.Node) -> bool:
            return all(isinstance(traced.module_of(user), _BatchNorm) for user in node.users)

        kept = {node for node in outputs if not _is_passed(traced, node) and not is_normed(node)}
    return [layers[_most_specific(names, modules)] for output, names in outputs.items() if output in kept]


def _usable(model: nn.Module, example: Tensor) -> dict[str, Layer]:
    return {layer.name: layer for layer in list_layers(model, example) if layer.usable}


def _grouped(names: Iterable[str], output_of: Callable[[str], Any]) -> dict[Any, list[str]]:
    """Return the names of each output."""
    found: dict[Any, list[str]] = {}
    for name in names:
        found.setdefault(output_of(name), []).append(name)
    return found


def _in_graph(traced: Traced, layers: dict[str, Layer]) -> Recommendation | None:
    names = _grouped(layers, traced.layers.__getitem__)
    modules = dict(traced.root.named_modules())
    _, *features = _features(traced)  # the first is the classifier
    found = [layers[_most_specific(names[node], modules)] for node in features if node in names]
    # Linear layers of a classifier that has several are passed over for the maps; a model of flat features has no maps.
    with_positions = [layer for layer in found if _has_positions(layer)]
    is_flat = not any(map(_has_positions, layers.values()))
    chosen = next(iter(with_positions or (found if is_flat else [])), None)
    return None if chosen is None else Recommendation(chosen.name, _reason(chosen))


def _features(traced: Traced) -> Iterator[fx.Node]:
    """Yield, back from the logits, what learns something or joins several inputs; at a join the way back ends."""
    node = output_node(traced)
    while True:
        inputs = [one for one in node.all_input_nodes if one.op != "get_attr"]
        if not _is_passed(traced, node):
            yield node
        if len(inputs) != 1:
            return
        node = inputs[0]


def _is_passed(traced: Traced, node: fx.Node) -> bool:
    """Return whether a node is no feature of its own: one input, nothing learned but the final norm's scale."""
    module = traced.module_of(node)
    return len(node.all_input_nodes) == 1 and (module is None or _is_simple(module))


def _is_simple(module: nn.Module) -> bool:
    """Return whether a module is an activation, pooling, dropout and the like, or a norm of single positions."""
    kind = type(module).__name__
    return next(module.children(), None) is None and (
        next(module.parameters(), None) is None or "LayerNorm" in kind or "RMSNorm" in kind
    )


def _most_specific(names: list[str], modules: dict[str, nn.Module]) -> str:
    """Of the names of one output take the innermost module; else the operation."""
    return max([name for name in names if name in modules] or names, key=lambda name: name.count("."))


def _has_positions(layer: Layer) -> bool:
    return layer.shape is not None and len(layer.shape) > 1


def _among_modules(model: nn.Module, example: Tensor) -> Recommendation:
    """Walk back from the last module with positions, over modules that take what another one returned, unchanged."""
    calls = _Calls(model, example)
    layers = {name: layer for name, layer in _usable(model, example).items() if _has_positions(layer)}
    layer = next((layers[path] for path in reversed(calls.outputs) if path in layers), None)
    if layer is None:
        raise SplitError(
            f"{type(model).__name__} cannot be traced, and no module of it gives maps or tokens to cut at."
        )
    while True:
        inner = calls.makers_of(calls.outputs[layer.name])[0]  # the same output has the names of all containers around
        if not _is_simple(calls.modules[inner]):
            return Recommendation(layer.name, _reason(layer))
        before = calls.makers_of(calls.inputs[inner], before=inner)
        earlier = next((layers[path] for path in before if path in layers), None)
        if earlier is None:
            is_identity = inner in calls.makers_of(calls.inputs[inner])
            return Recommendation(layer.name, _reason(layer, is_activation=not is_identity))
        layer = earlier


_State = tuple[Tensor, int] | None  # a tensor, and how often it was changed in place


class _Calls:
    """One run of a model: what its modules took and what they gave, in the order in which they returned."""

    def __init__(self, model: nn.Module, example: Tensor) -> None:
        own = eval_copy(model, share=True)
        self.modules = dict(own.named_modules())
        self.inputs: dict[str, _State] = {}
        self.outputs: dict[str, _State] = {}
        for path, module in self.modules.items():  # of a copy: the hooks need not be removed
            module.register_forward_pre_hook(lambda _m, args, p=path: self.inputs.update({p: _state(*args[:1])}))
            module.register_forward_hook(lambda _m, _a, output, p=path: self.outputs.update({p: _state(output)}))
        with torch.no_grad():
            own(example.clone().to(device_of(own, example)))

    def makers_of(self, state: _State, *, before: str | None = None) -> list[str]:
        """Return the modules that gave this very tensor, innermost first; changed in place since, it is another."""
        made = [(path, self.outputs[path]) for path in itertools.takewhile(lambda path: path != before, self.outputs)]
        return [path for path, own in made if state and own and own[0] is state[0] and own[1] == state[1]]


def _state(value: Any = None) -> _State:
    return (value, value._version) if isinstance(value, Tensor) else None


def _last_feature(traced: Traced, layers: dict[str, Layer]) -> Recommendation:
    features = [layer for layer in layers.values() if not _is_passed(traced, traced.layers[layer.name])]
    layer = ([one for one in features if _has_positions(one)] or features or list(layers.values()))[-1]
    reason = f"It is the last of {len(layers)} layers that can be used; several ways lead from it to the logits"
    return Recommendation(layer.name, f"{reason}: {layer.parameters_after:,} parameters follow.")


def _reason(layer: Layer, *, is_activation: bool = False) -> str:
    shape, cost = layer.shape or (), f"{layer.parameters_after:,} parameters follow."
    last = {3: "maps", 2: "tokens"}.get(len(shape), "features") + f" ({' x '.join(map(str, shape))})"
    if is_activation:  # which only a model that is cut by hooks leaves no choice about
        return (
            f"It gives the last {last} before pooling and classifier. They lie behind an activation, for no module "
            f"stands before it, and the model cannot be traced: {cost}"
        )
    return f"It gives the last {last} before activation, pooling and classifier: {cost}"
