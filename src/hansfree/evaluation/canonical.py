"""The canonical form of a model, on which LRP conserves relevance: what zennit calls a canonizer, by data flow.

zennit attaches its rules to modules, and a rule is exact only where modules are all there is. So, in the traced graph,

- batch norm is merged into the convolution before it: the epsilon and z+ rules must see its biases;
- a sum of two activations (a residual connection) becomes a ``Sum``, which shares relevance out in proportion;
- a squeeze-excite gate becomes a ``Gate``: to the activation that it scales it is a constant factor, and a factor
  passes relevance on unchanged. The branch that computes the gate gets none.

Activations (ReLU, SiLU) pass relevance on unchanged too (zennit's own choice), and stochastic depth does nothing in
eval mode. One form for all architectures: zennit's own canonizers know VGG and ResNet only, and no layer of a graph.
"""

from __future__ import annotations

import logging
import operator
from collections import Counter
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights
from zennit.core import BasicHook, RemovableHandle, RemovableHandleList
from zennit.layer import Sum
from zennit.rules import ZPlus
from zennit.types import Activation, AvgPool, BatchNorm, ConvolutionStandard, Linear, MaxPool

from hansfree.corrections import Projection
from hansfree.errors import SplitError
from hansfree.models.surgery import Traced, eval_copy, operation_name, output_node, returns_several, scalar_nodes, trace

logger = logging.getLogger(__name__)
_SUMS = (operator.add, operator.iadd, torch.add, "add", "add_")
_PRODUCTS = (operator.mul, operator.imul, torch.mul, "mul", "mul_")
# Their gradient passes on all relevance: they move numbers, or choose one, or cut off what has no relevance anyway.
# fmt: off
_CONSERVING = frozenset([
    "adaptive_max_pool2d", "cat", "chunk", "clone", "concat", "contiguous", "flatten", "getitem", "max_pool2d",
    "permute", "relu", "reshape", "split", "squeeze", "stacked", "transpose", "unbind", "unflatten", "unsqueeze",
    "view",
])
# fmt: on
# Merging changes only the order of float32 operations; a wrong graph is off by far more.
_SAME_LOGITS = 1e-3


class QuickZPlus(ZPlus):  # type: ignore[misc]  # zennit has no types
    """The z+ rule of a convolution, to the last digit, in two thirds of the time.

    Where no input is negative, as behind a ReLU, half of the rule is zero and is left out. The convolution's own
    gradient, which zennit has computed before it puts the rule's relevance in its place, is never asked for.
    """

    def register(self, module: nn.Module) -> Any:
        """Let the rule stand for the module's gradient."""

        def attach(_module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Any:
            return _ByRule.apply(given[0], output.detach(), self, module)

        return RemovableHandleList([RemovableHandle(self), module.register_forward_hook(attach)])

    def backward(self, module: nn.Module, grad_input: tuple[Tensor, ...], grad_output: tuple[Tensor, ...]) -> Any:
        """Return the relevance of the input."""
        if self.stored_tensors["input"][0].min() < 0:
            return super().backward(module, grad_input, grad_output)
        positive = BasicHook(param_modifiers=self.param_modifiers[:1])
        positive.stored_tensors = self.stored_tensors
        return positive.backward(module, grad_input, grad_output)


class _ByRule(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: Tensor, output: Tensor, rule: QuickZPlus, module: nn.Module) -> Tensor:
        ctx.save_for_backward(given)
        ctx.rule, ctx.module = rule, module
        return output

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, None, None, None]:
        ctx.rule.stored_tensors["input"] = ctx.saved_tensors
        return *ctx.rule.backward(ctx.module, ctx.saved_tensors, (relevance,)), None, None, None


class Gate(nn.Module):
    """Scale an activation by a gate, through which no relevance flows."""

    def forward(self, activation: Tensor, gate: Tensor) -> Tensor:
        """Return the product; backwards, the activation gets all that arrives."""
        scaled: Tensor = _Gated.apply(activation, gate.detach())  # rules of the gate's branch must not even run
        return scaled


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, activation: Tensor, gate: Tensor) -> Tensor:
        return activation * gate

    @staticmethod
    def backward(ctx: Any, relevance: Tensor) -> tuple[Tensor, None]:
        return relevance, None


_WITH_RULE = (Linear, Activation, AvgPool, MaxPool, Sum, Gate, Projection, nn.Identity, nn.Flatten, nn.Unflatten)


def canonical_form(model: nn.Module, probe: Tensor, *, layer: str | None = None) -> nn.Module:
    """Return the model in canonical form, from images to logits, or to the layer's output.

    It shares unchanged weights with the model and must only be read. On the probe, one image, it must give the model's
    own logits; otherwise, and where an operation has no rule, a ``SplitError`` says so.
    """
    form = _traced_form(model, probe, layer)
    if unknown := _without_rule(form):
        raise SplitError(f"LRP has no rule for {', '.join(unknown)} in {type(model).__name__}.")
    return form


def _traced_form(model: nn.Module, probe: Tensor, layer: str | None) -> fx.GraphModule:
    traced = trace(model, share=True)
    logits = output_node(traced)
    wanted = logits if layer is None else traced.find(layer)
    if returns_several(traced, wanted):
        raise SplitError(f"{layer!r} of {type(model).__name__} returns several tensors: choose another layer.")
    # Both are outputs for now: the rewriting then keeps track of them, and the logits show whether it is right.
    result = next(node for node in traced.graph.nodes if node.op == "output")
    result.args = ((logits, wanted),)
    scalars = scalar_nodes(traced.graph)
    for number, node in enumerate(list(traced.graph.nodes)):
        if node.op in ("call_function", "call_method") and scalars.isdisjoint(node.all_input_nodes):
            _make_module(traced, node, f"relevance_{number}")
    _merge_batch_norms(traced)
    form = fx.GraphModule(traced.root, traced.graph).eval()
    _check_logits(form, model, probe)
    result.args = (result.args[0][1],)
    form.graph.eliminate_dead_code()
    form.delete_all_unused_submodules()
    form.recompile()
    return form


def stacked(first: Tensor, second: Tensor) -> Tensor:
    """Put two summands side by side along a new last axis."""
    return torch.stack(torch.broadcast_tensors(first, second), dim=-1)  # type: ignore[no-untyped-call]


def _make_module(traced: Traced, node: fx.Node, name: str) -> None:
    """Turn a sum of two activations, or a gated activation, into a module that has a rule."""
    operands = node.args
    if node.kwargs or len(operands) != 2 or not all(isinstance(operand, fx.Node) for operand in operands):
        return
    graph = traced.graph
    if node.target in _SUMS:
        traced.root.add_module(name, Sum())
        with graph.inserting_before(node):
            replaced = graph.call_module(name, (graph.call_function(stacked, operands),))
    elif node.target in _PRODUCTS and sum(_is_gate(traced, operand) for operand in operands) == 1:
        gate, activation = sorted(operands, key=lambda operand: not _is_gate(traced, operand))
        traced.root.add_module(name, Gate())
        with graph.inserting_before(node):
            replaced = graph.call_module(name, (activation, gate))
    else:
        return
    node.replace_all_uses_with(replaced)
    graph.erase_node(node)


def _is_gate(traced: Traced, operand: Any) -> bool:
    """Return whether the operand lies between 0 and 1 by its making: the end of a squeeze-excite branch."""
    if isinstance(traced.module_of(operand), (nn.Sigmoid, nn.Hardsigmoid)):
        return True
    return operand.op in ("call_function", "call_method") and operation_name(operand) in ("sigmoid", "hardsigmoid")


def _merge_batch_norms(traced: Traced) -> None:
    """Merge each batch norm whose input is all that a convolution or linear layer is used for."""
    calls = Counter(node.target for node in traced.graph.nodes if node.op == "call_module")
    for node in list(traced.graph.nodes):
        norm = traced.module_of(node)
        source = node.args[0] if isinstance(norm, BatchNorm) else None
        if norm is None or not isinstance(source, fx.Node) or norm.running_mean is None:
            continue
        linear = traced.module_of(source)
        is_shared = len(source.users) > 1 or calls[source.target] > 1
        if is_shared or not isinstance(linear, (ConvolutionStandard, nn.Linear)):
            continue
        statistics: Any = (norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias)
        with torch.no_grad():  # new parameters on the copied module: the model's own are shared
            linear.weight, linear.bias = fuse_conv_bn_weights(linear.weight, linear.bias, *statistics)
        node.replace_all_uses_with(source)
        traced.graph.erase_node(node)


def _check_logits(form: fx.GraphModule, model: nn.Module, probe: Tensor) -> None:
    with torch.no_grad():
        expected = eval_copy(model, share=True)(probe.clone())
        try:
            logits, _ = form(probe.clone())
            is_same = torch.allclose(logits, expected, rtol=_SAME_LOGITS, atol=_SAME_LOGITS, equal_nan=True)
        except (RuntimeError, TypeError) as error:  # shapes that do not fit together; sums of what is no tensor
            logger.debug("The canonical form of %s fails: %s", type(model).__name__, error)
            is_same = False
    if not is_same:
        raise SplitError(f"The canonical form of {type(model).__name__} does not give the model's logits.")


def _without_rule(form: fx.GraphModule) -> list[str]:
    """Name the kinds of operation that relevance meets and LRP has no rule for, each once."""
    calls = Counter(node.target for node in form.graph.nodes if node.op == "call_module")
    found: dict[str, None] = {}
    for node in _on_the_way(form):
        if node.op in ("call_function", "call_method"):
            if (name := operation_name(node)) not in _CONSERVING:
                found[name] = None
        elif node.op == "call_module":
            module = form.get_submodule(str(node.target))
            kind = type(module).__name__
            if _is_idle(module):
                continue
            if isinstance(module, BatchNorm):
                found[f"{kind} that cannot be merged"] = None
            elif isinstance(module, nn.MultiheadAttention) or not isinstance(module, _WITH_RULE):
                found[kind] = None
            elif isinstance(module, Linear) and calls[node.target] > 1:
                found[f"{kind} that is called more than once"] = None
    return list(found)


def _on_the_way(form: fx.GraphModule) -> list[fx.Node]:
    """Return, in order, the nodes that relevance reaches: not the branches of gates, nor sizes."""
    seen, open_nodes = scalar_nodes(form.graph), [node for node in form.graph.nodes if node.op == "output"]
    reached: set[fx.Node] = set()
    while open_nodes:
        node = open_nodes.pop()
        if node not in seen:
            seen.add(node)
            reached.add(node)
            is_gated = node.op == "call_module" and isinstance(form.get_submodule(str(node.target)), Gate)
            open_nodes.extend(node.all_input_nodes[:1] if is_gated else node.all_input_nodes)
    return [node for node in form.graph.nodes if node in reached]


def _is_idle(module: nn.Module) -> bool:
    """Return whether the module does nothing in eval mode; stochastic depth has a class in every library."""
    return any(word in type(module).__name__ for word in ("Dropout", "DropPath", "StochasticDepth"))
