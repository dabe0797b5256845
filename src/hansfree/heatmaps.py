"""Where in the image a model looks: LRP heatmaps through zennit, and the share of them that lies on the artifact.

The composite is the paper's: epsilon rule for dense layers, z+ for convolutions, flat for the first layer. It is exact
only on a model in canonical form (batch norm merged into the layer before it, residual sums as modules), so that form
is made on a copy; the given model is never touched.
"""

from __future__ import annotations

import copy
import logging
import operator

import numpy as np
import torch
from torch import Tensor, fx, nn
from zennit.canonizers import Canonizer, SequentialMergeBatchNorm
from zennit.composites import EpsilonPlusFlat
from zennit.layer import Sum
from zennit.rules import Pass
from zennit.types import BatchNorm

from hansfree.errors import DataError, OptionError
from hansfree.splitting.inserted import EditedForward

logger = logging.getLogger(__name__)

# Merging changes only the order of float32 operations; a merge into the wrong layer is off by far more.
_SAME_LOGITS = 1e-3


def compute_heatmaps(
    model: nn.Module,
    images: Tensor,
    target: int | Tensor,
    *,
    batch_size: int = 32,
    pass_through: tuple[type[nn.Module], ...] = (),
) -> Tensor:
    """Return the relevance of every pixel for the target class's logit, summed over channels: (n, height, width).

    Args:
        model: a classifier; it is explained as it is in eval mode.
        images: (n, channels, height, width), normalised as the model takes them.
        target: one class for all images, or one per image (n,).
        batch_size: images per backward pass.
        pass_through: module types that hand relevance on unchanged, such as P-ClArC's inserted projection.
    """
    if images.ndim != 4:
        raise DataError(f"Heatmaps need images of shape (n, channels, height, width), not {tuple(images.shape)}.")
    if batch_size < 1:
        raise OptionError(f"batch_size must be at least 1, not {batch_size}.")
    classes = torch.as_tensor(target, dtype=torch.long).cpu()
    if classes.ndim > 1 or (classes.ndim == 1 and len(classes) != len(images)):
        raise DataError(
            f"target must be one class, or one per image ({len(images)}), not of shape {tuple(classes.shape)}."
        )
    if len(images) == 0:
        return images.new_zeros((0, *images.shape[2:]))
    classes = classes.expand(len(images))

    # A caller may sit inside no_grad or inference_mode; relevance is a (modified) gradient all the same.
    with torch.inference_mode(False), torch.enable_grad():
        explained = _explainable_copy(model)
        like = next(explained.parameters(), images)
        probe = images[:1].clone().to(like)
        _check_classes(classes, explained(probe).shape[-1])
        layer_map = [(pass_through, Pass())] if pass_through else []
        composite = EpsilonPlusFlat(layer_map=layer_map, canonizers=_canonizers(explained, probe))
        maps = []
        with composite.context(explained) as hooked:
            for batch, wanted in zip(torch.split(images, batch_size), torch.split(classes, batch_size)):
                maps.append(_relevance(hooked, batch.clone().to(like), wanted.to(like.device)))
    return torch.cat(maps).to(images.device)


def artifact_relevance(heatmaps: Tensor | np.ndarray, masks: Tensor | np.ndarray) -> np.ndarray:
    """Return per image the share of absolute relevance that lies on the artifact (the paper's R_bias), in [0, 1].

    NaN where an image has no relevance at all, or where the heatmap is not finite: a share of nothing is not zero.
    """
    relevance = np.abs(np.asarray(torch.as_tensor(heatmaps).detach().cpu(), dtype=np.float64))
    mask = np.asarray(torch.as_tensor(masks).cpu(), dtype=bool)
    if relevance.ndim != 3 or relevance.shape != mask.shape:
        raise DataError(
            f"Heatmaps and masks must both be (n, height, width); they are {relevance.shape} and {mask.shape}."
        )
    total = relevance.sum(axis=(1, 2))
    on_artifact = np.where(mask, relevance, 0.0).sum(axis=(1, 2))
    defined = np.isfinite(total) & (total > 0)
    share = np.full(len(total), np.nan)
    share[defined] = on_artifact[defined] / total[defined]
    return share


def _relevance(hooked: nn.Module, batch: Tensor, wanted: Tensor) -> Tensor:
    batch.requires_grad_(True)
    logits = hooked(batch)
    # The relevance that enters at the top is the logit itself, so that the heatmap adds up to it.
    start = torch.zeros_like(logits).scatter(1, wanted[:, None], logits.detach().gather(1, wanted[:, None]))
    (relevance,) = torch.autograd.grad(logits, batch, grad_outputs=start)
    return relevance.sum(dim=1)


def _check_classes(classes: Tensor, n_classes: int) -> None:
    low, high = int(classes.min()), int(classes.max())
    if low < 0 or high >= n_classes:
        raise OptionError(
            f"target {low if low < 0 else high} is not a class of this model; allowed are 0 to {n_classes - 1}."
        )


def _explainable_copy(model: nn.Module) -> nn.Module:
    """Copy the model, in eval mode, with nothing in place and every sum of a traced graph as a module."""
    explained = copy.deepcopy(model).eval().requires_grad_(False)
    # A model with a projection at a graph node runs a graph in place of its class's forward, which no canonizer of
    # torchvision's blocks reaches: explain that graph.
    forward = vars(explained).get("forward")
    if isinstance(forward, EditedForward):
        explained = fx.GraphModule(forward.model, forward.graph).eval()
    for module in explained.modules():
        if getattr(module, "inplace", False) is True:
            module.inplace = False  # type: ignore[assignment]  # the rules read inputs again after the forward pass
    return _with_sum_modules(explained) if isinstance(explained, fx.GraphModule) else explained


def _with_sum_modules(traced: fx.GraphModule) -> fx.GraphModule:
    """Make every sum of two activations a module, so that zennit shares relevance out instead of doubling it."""
    sums = (operator.add, operator.iadd, torch.add, "add", "add_")
    for number, node in enumerate(list(traced.graph.nodes)):
        branches = node.args[:2]
        if node.op not in ("call_function", "call_method") or node.target not in sums:
            continue
        if node.kwargs or len(branches) != 2 or not all(isinstance(branch, fx.Node) for branch in branches):
            continue
        name = f"relevance_sum_{number}"
        traced.add_submodule(name, Sum())
        with traced.graph.inserting_before(node):
            stacked = traced.graph.call_function(torch.stack, (list(branches),), {"dim": -1})
            node.replace_all_uses_with(traced.graph.call_module(name, (stacked,)))
        traced.graph.erase_node(node)
    traced.recompile()
    return traced


def _canonizers(model: nn.Module, probe: Tensor) -> list[Canonizer]:
    """Choose the canonizer for the architecture; none, with a warning, where it would change the model's answers."""
    from torchvision.models import VGG, EfficientNet, ResNet  # 1.6 s to import, hence only here
    from torchvision.ops import SqueezeExcitation
    from zennit.torchvision import ResNetCanonizer, VGGCanonizer

    name = type(model).__name__
    if any(isinstance(m, (EfficientNet, SqueezeExcitation, nn.LayerNorm)) for m in model.modules()):
        logger.warning("LRP has no canonizer for %s yet: relevance is not conserved in its heatmaps.", name)
    canonizer = SequentialMergeBatchNorm()
    if isinstance(model, VGG):
        canonizer = VGGCanonizer()
    elif isinstance(model, ResNet):
        canonizer = ResNetCanonizer()

    if not any(isinstance(module, BatchNorm) for module in model.modules()):
        return [canonizer]  # nothing to merge, so nothing to try on a further copy (VGG-16 has half a gigabyte)
    expected = model(probe)
    trial = copy.deepcopy(model)
    try:
        canonizer.apply(trial)
        is_same = torch.allclose(trial(probe), expected, rtol=_SAME_LOGITS, atol=_SAME_LOGITS, equal_nan=True)
    except (RuntimeError, AttributeError):  # shapes that do not fit; a batch norm without weights
        is_same = False
    if is_same:
        return [canonizer]
    logger.warning("Batch norm of %s cannot be merged: relevance is not conserved in its heatmaps.", name)
    return []
