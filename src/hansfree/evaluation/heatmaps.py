"""Heatmaps by LRP or gradient x input, and the share of relevance on a mask."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor, nn

from hansfree.corrections import Projection
from hansfree.data import Images, as_tensor
from hansfree.errors import AmbiguousLayerError, DataError, LayerNotFoundError, OptionError, SplitError, check_choice
from hansfree.models.surgery import eval_copy

if TYPE_CHECKING:
    from zennit.core import Composite

logger = logging.getLogger(__name__)

Explanation = Literal["lrp", "gradient x input"]
# Takes the output for some images and which rows they are; returns the weights that make it the explained score.
Weigh = Callable[[Tensor, slice], Tensor]


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


def explanation_of(model: nn.Module, images: Tensor, *, layer: str | None = None) -> Explanation:
    """Return how the model's logits, or a layer's output, are explained: by LRP where every operation has a rule.

    Layer norm, attention and layer scale have none, nor has a model that cannot be traced: a share of relevance would
    mean nothing there. One image is enough.
    """
    return "gradient x input" if usable_form(model, images, layer=layer) is None else "lrp"


def usable_form(model: nn.Module, images: Tensor, *, layer: str | None = None) -> nn.Module | None:
    """Return the form of the model on which LRP conserves relevance, or None with a warning."""
    from hansfree.evaluation.canonical import canonical_form  # here: zennit brings torchvision along, which takes 3 s

    with torch.inference_mode(False), torch.enable_grad():
        probe = images[:1].clone().to(next(model.parameters(), images))
        try:
            form = canonical_form(model, probe, layer=layer)
            propagate(form, probe, lambda output, _rows: torch.ones_like(output))
            return form
        except (LayerNotFoundError, AmbiguousLayerError):
            raise
        except SplitError as error:
            reason = str(error)
        except Exception as error:  # zennit's hooks run between the model's own modules: anything may come out of it
            reason = f"LRP fails on {type(model).__name__}: {str(error).rstrip('.')}."
    logger.warning("%s Its heatmaps are gradient x input.", reason)
    return None


def propagate(form: nn.Module, images: Tensor, weigh: Weigh, *, batch_size: int = 32) -> Tensor:
    """Send relevance from the output of a canonical form down to the pixels: (n, height, width).

    The composite is the paper's: epsilon rule for dense layers, z+ for convolutions, flat for the first layer; what a
    correction inserted passes relevance on unchanged. The relevance that enters at the top is the explained score
    itself, so that the heatmap adds up to it.
    """
    from zennit.composites import EpsilonPlusFlat  # here, for the same reason
    from zennit.rules import Pass
    from zennit.types import Convolution

    from hansfree.evaluation.canonical import QuickZPlus

    composite = EpsilonPlusFlat(layer_map=[(Projection, Pass()), (Convolution, QuickZPlus())])

    def start(output: Tensor, rows: slice) -> Tensor:
        weights = weigh(output, rows)
        return torch.where(weights == 0, torch.zeros_like(output), output * weights)

    with composite.context(form) as hooked:
        like = next(form.parameters(), images)
        return gradient_maps(hooked, images, start, like=like, batch_size=batch_size, times_input=False)


def gradient_maps(
    function: Callable[[Tensor], Tensor],
    images: Tensor,
    weigh: Weigh,
    *,
    like: Tensor,
    batch_size: int = 32,
    times_input: bool = True,
) -> Tensor:
    """Return the score's gradient by each pixel, by default times the pixel, summed over colours: (n, height, width).

    To first order what the pixel adds to the score, compared with the mean colour, which the normalisation maps to 0.
    The function works on the device, and in the type, of ``like``.
    """
    maps = []
    for first in range(0, len(images), batch_size):
        rows = slice(first, first + batch_size)
        batch = images[rows].clone().to(like).detach().requires_grad_()
        output = function(batch)
        (slope,) = torch.autograd.grad(output, batch, grad_outputs=weigh(output.detach(), rows))
        maps.append((slope * batch.detach() if times_input else slope).sum(dim=1))
    return torch.cat(maps).to(images.device)


def compute_heatmaps(
    model: nn.Module,
    images: Tensor | Images,
    target: int | Tensor,
    *,
    explanation: Explanation | None = None,
    composite: Composite | None = None,
    batch_size: int = 32,
) -> Tensor:
    """Return the relevance of every pixel for the target class's logit, summed over channels: (n, height, width).

    By LRP where that conserves relevance (:func:`explanation_of`): without biases it adds up to the logit. By gradient
    x input elsewhere.

    Args:
        model: a classifier; it is explained in eval mode.
        images: (n, channels, height, width), normalised as the model takes them; or a dataset of such.
        target: one class for all images, or one per image (n,).
        composite: of zennit, whose rules are used in place of ours; its canonizers are its own.
        explanation: None takes what the model allows; LRP where it is not possible is a ``SplitError``.

    Examples:
        >>> model = nn.Sequential(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 144, 2))
        >>> compute_heatmaps(model, torch.rand(3, 3, 16, 16), target=1).shape
        torch.Size([3, 16, 16])
    """
    images = as_tensor(images)
    if composite is not None and explanation is not None:
        raise OptionError("A composite has its own rules: leave out explanation.")
    check_images(images, batch_size)
    if explanation is not None:
        check_choice("explanation", explanation, Explanation)
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
        like = next(model.parameters(), images)
        probe = images[:1].clone().to(like)
        plain = eval_copy(model, share=True)
        n_classes = plain(probe.clone()).shape[-1]
        for label in (int(classes.min()), int(classes.max())):
            if not 0 <= label < n_classes:
                raise OptionError(f"target {label} is not a class of this model; allowed are 0 to {n_classes - 1}.")

        def weigh(logits: Tensor, rows: slice) -> Tensor:
            return torch.zeros_like(logits).scatter(1, classes[rows, None].to(logits.device), 1.0)

        if composite is not None:
            own = eval_copy(model).to(like.device)  # its canonizers change weights

            def start(logits: Tensor, rows: slice) -> Tensor:
                return weigh(logits, rows) * logits

            with composite.context(own) as hooked:
                return gradient_maps(hooked, images, start, like=like, batch_size=batch_size, times_input=False)
        form: nn.Module | None = None
        if explanation is None:
            form = usable_form(model, images)
        elif explanation == "lrp":
            from hansfree.evaluation.canonical import canonical_form  # here, as zennit takes 3 s to import

            form = canonical_form(model, probe)
        if form is not None:
            return propagate(form, images, weigh, batch_size=batch_size)
        return gradient_maps(lambda x: plain(x.clone()), images, weigh, like=like, batch_size=batch_size)


def check_images(images: Tensor, batch_size: int) -> None:
    """Check the shape of images and the batch size."""
    if images.ndim != 4:
        raise DataError(f"Heatmaps need images of shape (n, channels, height, width), not {tuple(images.shape)}.")
    if batch_size < 1:
        raise OptionError(f"batch_size must be at least 1, not {batch_size}.")
