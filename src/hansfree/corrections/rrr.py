"""RRR, right for the right reasons: penalise the input gradient on the artifact's pixels."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.func import jvp, vjp
from torch.nn import functional
from torch.utils.data import Dataset, default_collate

from hansfree.activations import Activations, Live
from hansfree.corrections.base import MethodInfo, Need
from hansfree.corrections.latent import LatentCorrection, count_classes
from hansfree.corrections.rr_clarc import published_log_probabilities
from hansfree.corrections.training import FineTuning, FunctionalHead, HeadBatch
from hansfree.data import Example
from hansfree.errors import DataError, OptionError, check_choice
from hansfree.models.surgery import Cut

RRRNorm = Literal["squared", "cosine"]


class RRR(LatentCorrection, name="rrr"):
    """Fine-tune with a penalty on the gradient of the log-probabilities at the pixels of the artifact's mask.

    The trunk is frozen, so no second-order pass through it is needed: the gradient goes down to the pixels once, and
    its masked part comes back up as one tangent. All strengths share the trunk's forward pass. Images without artifact
    have an empty mask and cost the head's own step alone.

    Args:
        images: The images of the activations, in the same order, as :class:`hansfree.Example` with masks.
        target: ``"sum"`` of all log-probabilities (the original), or the log-probability of one class.
        norm: ``"squared"``, the sum of squares over pixels and colours (Ross et al., 2017), or ``"cosine"`` between
            mask and absolute gradient, summed over colours: the published code of RR-ClArC, for its paper's lambdas.
            It does not change with the gradient's length, and takes ``log(p + 1e-5)``.
    """

    rank = 1
    info = MethodInfo(
        title="RRR",
        strengths=(1e-2, 1e-1, 1.0, 10.0, 100.0),
        needs=frozenset({Need.MASKS}),
        in_default_run=True,
        paper_strengths=(5e-5, *(float(f"{digit}e{power}") for power in range(-3, 7) for digit in (1, 5)), 1e7),
        paper_options={"norm": "cosine"},
    )

    def __init__(
        self,
        images: Dataset[Any],
        *,
        strength: float = 1.0,
        target: Literal["sum"] | int = "sum",
        norm: RRRNorm = "squared",
        tuning: FineTuning | None = None,
    ) -> None:
        super().__init__(strength=strength, tuning=tuning)
        if not isinstance(target, int | np.integer) and str(target) != "sum":
            raise OptionError(f"target is {target!r}; allowed are 'sum' and a class number.")
        check_choice("norm", norm, RRRNorm)
        self.images = images
        self.target = target
        self.norm = norm

    def check(self, cut: Cut, activations: Activations) -> None:
        """Raise for images without mask or not those of the activations, and for a class that does not exist."""
        super().check(cut, activations)
        if len(self.images) != len(activations):  # type: ignore[arg-type]
            raise DataError(f"RRR needs one image for each of the {len(activations)} activations, in the same order.")
        first = self.images[0]
        if not isinstance(first, Example):
            raise DataError(f"RRR needs images with masks (Example), got {type(first).__name__}.")
        ids = getattr(self.images, "ids", None)
        if int(first.id) != int(activations.ids[0]) or not (ids is None or np.array_equal(ids, activations.ids)):
            raise DataError("RRR's images are not in the order of the activations.")
        if not self._may_have_mask(np.arange(len(activations))).any():
            raise DataError("None of RRR's images carries the artifact: nothing would be penalised.")
        classes = count_classes(cut, activations)
        if self.target != "sum" and not 0 <= self.target < classes:
            raise OptionError(f"target is {self.target!r}, but the model has the classes 0 to {classes - 1}.")

    def loss_terms(self, head: FunctionalHead, batch: HeadBatch) -> tuple[Tensor, Tensor | None]:
        """Return the logits of all images and the penalty of those with a mask."""
        marked = np.flatnonzero(self._may_have_mask(batch.rows))
        if not len(marked):
            return head(*batch.values), None
        examples = default_collate([self.images[int(row)] for row in batch.rows[marked]])
        device = batch.labels.device
        images, masks = examples.image.to(device), examples.mask[:, None].to(device)

        def run(pixels: Tensor) -> Live:
            return tuple(batch.phi(*batch.trunk(pixels)))

        frozen = cache(lambda: vjp(run, images))  # once for all strengths, outside of vmap

        def log_probability(logits: Tensor) -> Tensor:
            logits = logits[marked]
            each = published_log_probabilities(logits) if self.norm == "cosine" else logits.log_softmax(1)
            return each.sum(1) if self.target == "sum" else each[:, self.target]

        with torch.no_grad(), torch.random.fork_rng():  # the head runs again below, with the same dropout
            outputs, pull_to_head = vjp(lambda *inputs: log_probability(head(*inputs)), *batch.values)  # type: ignore[misc]
            at_head = tuple(part[marked] for part in pull_to_head(torch.ones_like(outputs)))

        def measure(at_head: Live) -> Live:
            reached, pull_to_pixels = frozen()  # type: ignore[misc]
            gradient = pull_to_pixels(tuple(map(torch.Tensor.to, at_head, reached)))[0]
            size, pull_to_gradient = vjp(lambda gradient: self._size(gradient, masks.to(gradient)), gradient)  # type: ignore[misc]
            pushed = jvp(run, (images,), pull_to_gradient(torch.ones_like(size)))[1]  # it runs again
            return size, *pushed

        value, *found = _ForEachHead.apply(measure, *at_head)
        # What a fixed tangent makes of the log-probability is what the gradient at the head makes of it. So the head's
        # gradient is differentiated by going up once more, where each linear layer takes both in one product.
        tangents = tuple(_spread(each, marked, like) for each, like in zip(found, batch.values))
        logits, along = head.push(batch.values, tuple(each[None] for each in tangents))
        change = jvp(log_probability, (logits,), (along[0],))[1]
        share = len(marked) / len(batch.rows)  # images without mask count as zeros in the mean
        return logits, (value + change - change.detach()) * share  # the value, with the gradient of its slope

    def _size(self, gradient: Tensor, masks: Tensor) -> Tensor:
        """Return the penalty of each image for its gradient ``(n, colours, height, width)``."""
        if self.norm == "squared":
            return (gradient * masks).square().flatten(1).sum(1)
        return functional.cosine_similarity(gradient.sum(1).abs().flatten(1), masks.flatten(1))

    def _may_have_mask(self, rows: np.ndarray) -> np.ndarray:
        known = getattr(self.images, "has_artifact", None)
        return np.ones(len(rows), dtype=bool) if known is None else np.asarray(known)[rows]


def _spread(found: Tensor, marked: np.ndarray, like: Tensor) -> Tensor:
    """Return tangents of all images; those of images without a mask are zero."""
    if len(found) == len(like):
        return found
    return torch.zeros_like(like).index_copy(0, torch.from_numpy(marked).to(like.device), found.to(like))


class _ForEachHead(torch.autograd.Function):
    """Measure the gradients of stacked heads one after the other, outside of ``vmap``: they share a forward pass."""

    @staticmethod
    def forward(measure: Callable[[Live], Live], *at_head: Tensor) -> Live:
        return measure(at_head)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing: what it is given are constants."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, measure: Callable[[Live], Live], *at_head: Tensor) -> tuple[Live, int]:
        first = [
            part.expand(info.batch_size, *part.shape) if d is None else part.movedim(d, 0)
            for part, d in zip(at_head, in_dims[1:])
        ]
        each = [measure(parts) for parts in zip(*first)]
        return tuple(torch.stack(parts) for parts in zip(*each)), 0
