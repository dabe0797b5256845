"""Heatmaps of a logit: which pixels speak for a class."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hansfree.errors import DataError, OptionError, check_choice
from hansfree.heatmaps.explanations import Explanation, gradient_times_input, propagate, usable_form
from hansfree.splitting.graph import eval_copy


def compute_heatmaps(
    model: nn.Module,
    images: Tensor,
    target: int | Tensor,
    *,
    explanation: Explanation | None = None,
    batch_size: int = 32,
    pass_through: tuple[type[nn.Module], ...] = (),
) -> Tensor:
    """Return the relevance of every pixel for the target class's logit, summed over channels: (n, height, width).

    By LRP where that conserves relevance (:func:`explanation_of`): without biases it adds up to the logit, and what a
    layer's bias contributes stays with the bias. By gradient x input elsewhere.

    Args:
        model: a classifier; it is explained as it is in eval mode.
        images: (n, channels, height, width), normalised as the model takes them.
        target: one class for all images, or one per image (n,).
        explanation: None takes what the model allows; LRP that is asked for and not possible is a ``SplitError``.
        batch_size: images per backward pass.
        pass_through: module types that hand relevance on unchanged, such as P-ClArC's inserted projection; gradients go
            through them as through all others.
    """
    check_images(images, batch_size)
    if explanation is not None:
        check_choice("explanation", explanation, Explanation)
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
        like = next(model.parameters(), images)
        probe = images[:1].clone().to(like)
        plain = eval_copy(model, share=True)
        _check_classes(classes, plain(probe.clone()).shape[-1])

        def weigh(logits: Tensor, rows: slice) -> Tensor:
            return torch.zeros_like(logits).scatter(1, classes[rows, None].to(logits.device), 1.0)

        form: nn.Module | None = None
        if explanation is None:
            form = usable_form(model, images, pass_through=pass_through)
        elif explanation == "lrp":
            from hansfree.heatmaps.canonical import canonical_form  # here, as zennit takes 3 s to import

            form = canonical_form(model, probe, pass_through=pass_through)
        if form is not None:
            return propagate(form, images, weigh, batch_size=batch_size, pass_through=pass_through)
        return gradient_times_input(lambda x: plain(x.clone()), images, weigh, like=like, batch_size=batch_size)


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
