"""How a heatmap is made: by LRP where it conserves relevance, and by gradient x input for every other model."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from hansfree.errors import AmbiguousLayerError, LayerNotFoundError, SplitError

logger = logging.getLogger(__name__)

Explanation = Literal["lrp", "gradient x input"]
Weigh = Callable[[Tensor, slice], Tensor]
"""Takes the output for some images and which rows they are; returns the weights that make it the explained score."""


def explanation_of(
    model: nn.Module,
    images: Tensor,
    *,
    layer: str | None = None,
    pass_through: tuple[type[nn.Module], ...] = (),
) -> Explanation:
    """Return how the model's logits, or a layer's output, are explained.

    LRP, where every operation on the way has a rule. Layer norm, attention and layer scale have none, nor has a model
    that cannot be traced: relevance would be lost or made up on the way, and a share of it would mean nothing.

    Args:
        images: one is enough.
    """
    form = usable_form(model, images, layer=layer, pass_through=pass_through)
    return "gradient x input" if form is None else "lrp"


def usable_form(
    model: nn.Module, images: Tensor, *, layer: str | None = None, pass_through: tuple[type[nn.Module], ...] = ()
) -> nn.Module | None:
    """Return the form of the model on which LRP conserves relevance, or None, with a word in the log."""
    from hansfree.heatmaps.canonical import canonical_form  # here: zennit brings torchvision along, which takes 3 s

    with torch.inference_mode(False), torch.enable_grad():
        probe = images[:1].clone().to(next(model.parameters(), images))
        try:
            form = canonical_form(model, probe, layer=layer, pass_through=pass_through)
            propagate(form, probe, lambda output, _rows: torch.ones_like(output), pass_through=pass_through)
        except (LayerNotFoundError, AmbiguousLayerError):
            raise
        except SplitError as error:
            reason = str(error)
        except Exception as error:  # zennit's hooks run between the model's own modules: anything may come out of it
            reason = f"LRP fails on {type(model).__name__}: {str(error).rstrip('.')}."
        else:
            return form
    logger.warning("%s Its heatmaps are gradient x input.", reason)
    return None


def propagate(
    form: nn.Module,
    images: Tensor,
    weigh: Weigh,
    *,
    batch_size: int = 32,
    pass_through: tuple[type[nn.Module], ...] = (),
) -> Tensor:
    """Send relevance from the output of a canonical form down to the pixels: (n, height, width).

    The composite is the paper's: epsilon rule for dense layers, z+ for convolutions, flat for the first layer. The
    relevance that enters at the top is the explained score itself, so that the heatmap adds up to it.
    """
    from zennit.composites import EpsilonPlusFlat  # here, for the same reason
    from zennit.rules import Pass

    composite = EpsilonPlusFlat(layer_map=[(pass_through, Pass())] if pass_through else [])

    def start(output: Tensor, rows: slice) -> Tensor:
        weights = weigh(output, rows)
        return torch.where(weights == 0, torch.zeros_like(output), output * weights)

    with composite.context(form) as hooked:
        return _backward(hooked, images, start, batch_size=batch_size, times_input=False)


def gradient_times_input(
    function: Callable[[Tensor], Tensor], images: Tensor, weigh: Weigh, *, like: Tensor, batch_size: int = 32
) -> Tensor:
    """Return the score's gradient by each pixel times the pixel, summed over colours: (n, height, width).

    To first order what the pixel adds to the score, compared with the mean colour, which the normalisation maps to 0.

    Args:
        like: says on which device, and in which type, the function works.
    """
    return _backward(function, images, weigh, batch_size=batch_size, times_input=True, like=like)


def _backward(
    function: Callable[[Tensor], Tensor],
    images: Tensor,
    start: Weigh,
    *,
    batch_size: int,
    times_input: bool,
    like: Tensor | None = None,
) -> Tensor:
    if like is None and isinstance(function, nn.Module):
        like = next(function.parameters(), None)
    maps = []
    for first in range(0, len(images), batch_size):
        rows = slice(first, first + batch_size)
        batch = images[rows].clone().to(images if like is None else like).detach().requires_grad_()
        output = function(batch)
        (slope,) = torch.autograd.grad(output, batch, grad_outputs=start(output.detach(), rows))
        maps.append((slope * batch.detach() if times_input else slope).sum(dim=1))
    return torch.cat(maps).to(images.device)
