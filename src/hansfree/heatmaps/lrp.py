"""LRP of a logit: which pixels speak for a class."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from zennit.composites import EpsilonPlusFlat
from zennit.rules import Pass

from hansfree.errors import DataError, OptionError
from hansfree.heatmaps.canonical import canonical_form


def compute_heatmaps(
    model: nn.Module,
    images: Tensor,
    target: int | Tensor,
    *,
    batch_size: int = 32,
    pass_through: tuple[type[nn.Module], ...] = (),
) -> Tensor:
    """Return the relevance of every pixel for the target class's logit, summed over channels: (n, height, width).

    Without biases it adds up to the logit; what a layer's bias contributes stays with the bias.

    Args:
        model: a classifier; it is explained as it is in eval mode.
        images: (n, channels, height, width), normalised as the model takes them.
        target: one class for all images, or one per image (n,).
        batch_size: images per backward pass.
        pass_through: module types that hand relevance on unchanged, such as P-ClArC's inserted projection.
    """
    check_images(images, batch_size)
    classes = torch.as_tensor(target, dtype=torch.long).cpu()
    if classes.ndim > 1 or (classes.ndim == 1 and len(classes) != len(images)):
        raise DataError(
            f"target must be one class, or one per image ({len(images)}), not of shape {tuple(classes.shape)}."
        )
    for module in model.modules():
        if isinstance(module, pass_through) and next(module.children(), None) is not None:
            raise OptionError(f"{type(module).__name__} holds other modules, so relevance cannot pass it as a whole.")
    if len(images) == 0:
        return images.new_zeros((0, *images.shape[2:]))
    classes = classes.expand(len(images))

    # A caller may sit inside no_grad or inference_mode; relevance is a (modified) gradient all the same.
    with torch.inference_mode(False), torch.enable_grad():
        probe = images[:1].clone().to(next(model.parameters(), images))
        form = canonical_form(model, probe, pass_through=pass_through)
        _check_classes(classes, form(probe).shape[-1])

        def start(logits: Tensor, rows: slice) -> Tensor:
            # The relevance that enters at the top is the logit itself, so that the heatmap adds up to it.
            wanted = classes[rows, None].to(logits.device)
            return torch.zeros_like(logits).scatter(1, wanted, logits.gather(1, wanted))

        return propagate(form, images, start, batch_size=batch_size, pass_through=pass_through)


def propagate(
    form: nn.Module,
    images: Tensor,
    start: Callable[[Tensor, slice], Tensor],
    *,
    batch_size: int,
    pass_through: tuple[type[nn.Module], ...] = (),
) -> Tensor:
    """Send relevance from the output of a canonical form down to the pixels: (n, height, width).

    The composite is the paper's: epsilon rule for dense layers, z+ for convolutions, flat for the first layer.

    Args:
        start: takes the output for some images and which rows they are; returns the relevance of the output.
    """
    like = next(form.parameters(), images)
    composite = EpsilonPlusFlat(layer_map=[(pass_through, Pass())] if pass_through else [])
    maps = []
    with composite.context(form) as hooked:
        for first in range(0, len(images), batch_size):
            rows = slice(first, first + batch_size)
            batch = images[rows].clone().to(like).detach().requires_grad_()
            output = hooked(batch)
            (relevance,) = torch.autograd.grad(output, batch, grad_outputs=start(output.detach(), rows))
            maps.append(relevance.sum(dim=1))
    return torch.cat(maps).to(images.device)


def check_images(images: Tensor, batch_size: int) -> None:
    """Refuse what is not a batch of images, or no number of them."""
    if images.ndim != 4:
        raise DataError(f"Heatmaps need images of shape (n, channels, height, width), not {tuple(images.shape)}.")
    if batch_size < 1:
        raise OptionError(f"batch_size must be at least 1, not {batch_size}.")


def _check_classes(classes: Tensor, n_classes: int) -> None:
    low, high = int(classes.min()), int(classes.max())
    if low < 0 or high >= n_classes:
        raise OptionError(
            f"target {low if low < 0 else high} is not a class of this model; allowed are 0 to {n_classes - 1}."
        )
