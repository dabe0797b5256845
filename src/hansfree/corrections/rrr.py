"""RRR, right for the right reasons: penalise the input gradient on the artifact's pixels (Ross et al., 2017)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import jvp, vjp
from torch.utils.data import Dataset, default_collate

from hansfree.activations import Activations, Live
from hansfree.corrections.base import MethodInfo, Need
from hansfree.corrections.latent import LatentCorrection, count_classes
from hansfree.corrections.training import FineTuning, FunctionalHead, HeadBatch
from hansfree.data import Example
from hansfree.errors import DataError, OptionError, check_choice
from hansfree.models.surgery import Cut

Norm = Literal["squared", "cosine"]


class RRR(LatentCorrection, name="rrr"):
    """Fine-tune with a penalty on the gradient of the log-probabilities at the pixels of the artifact's mask.

    The trunk is frozen, so no second-order pass through it is needed: the gradient goes down to the pixels once, and
    its masked part comes back up as one tangent. All strengths share the trunk's forward pass. Images without artifact
    have an empty mask and cost the head's own step alone.

    Args:
        images: The images of the activations, in the same order, as :class:`hansfree.Example` with masks.
        target: ``"sum"`` of all log-probabilities (the original), or the log-probability of one class.
        norm: ``"squared"``, or ``"cosine"``: the share of the squared gradient that lies on the mask.
    """

    rank = 1
    info = MethodInfo(
        title="RRR",
        strengths=(1e-2, 1e-1, 1.0, 10.0, 100.0),
        needs=frozenset({Need.MASKS}),
        in_default_run=True,
        paper_strengths=(5e-5, *(float(f"{digit}e{power}") for power in range(-3, 7) for digit in (1, 5)), 1e7),
    )

    def __init__(
        self,
        images: Dataset[Any],
        *,
        strength: float = 1.0,
        target: Literal["sum"] | int = "sum",
        norm: Norm = "squared",
        tuning: FineTuning | None = None,
    ) -> None:
        super().__init__(strength=strength, tuning=tuning)
        check_choice("norm", norm, Norm)
        if not isinstance(target, int | np.integer) and str(target) != "sum":
            raise OptionError(f"target is {target!r}; allowed are 'sum' and a class number.")
        self.images = images
        self.target = target
        self.norm = norm

    def describe(self) -> dict[str, str]:
        """Add target and norm."""
        return {**super().describe(), "target": str(self.target), "norm": self.norm}

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
        frozen = cache(lambda: _Frozen(batch.trunk, batch.phi, images))  # once for all strengths, outside of vmap

        def log_probability(logits: Tensor) -> Tensor:
            each = logits[marked].log_softmax(1)
            return each.sum(1) if self.target == "sum" else each[:, self.target]

        with torch.no_grad(), torch.random.fork_rng():  # the head runs again below, with the same dropout
            outputs, pull_to_head = vjp(lambda *inputs: log_probability(head(*inputs)), *batch.values)  # type: ignore[misc]
            at_head = tuple(part[marked] for part in pull_to_head(torch.ones_like(outputs)))

        def measure(at_head: Live) -> Live:
            value, half_slope = self._size(frozen().pull(at_head), masks)
            return value, *frozen().push(half_slope)

        value, *found = _ForEachHead.apply(measure, *at_head)
        # What a fixed tangent makes of the log-probability is what the gradient at the head makes of it. So the head's
        # gradient is differentiated by going up once more, where each linear layer takes both in one product.
        tangents = tuple(_spread(each, marked, like) for each, like in zip(found, batch.values))
        logits, along = head.push(batch.values, tuple(each[None] for each in tangents))
        change = jvp(log_probability, (logits,), (along[0],))[1]
        share = len(marked) / len(batch.rows)  # images without mask count as zeros in the mean
        return logits, (value + 2 * (change - change.detach())) * share  # the value, with the gradient of its slope

    def _size(self, gradient: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
        """Return the penalty and half of its derivative by the pixels' gradient."""
        on_mask = gradient * masks
        squared = on_mask.square().flatten(1).sum(1)
        if self.norm == "squared":
            return squared, on_mask
        total = gradient.square().flatten(1).sum(1).clamp_min(torch.finfo(gradient.dtype).tiny)
        share = squared / total
        each = (-1, 1, 1, 1)
        return share, (on_mask - share.reshape(each) * gradient) / total.reshape(each)

    def _may_have_mask(self, rows: np.ndarray) -> np.ndarray:
        known = getattr(self.images, "has_artifact", None)
        return np.ones(len(rows), dtype=bool) if known is None else np.asarray(known)[rows]


class _Frozen:
    """Trunk and phi around some images: gradients at the head's input go down to the pixels, tangents go up."""

    def __init__(self, trunk: nn.Module, phi: nn.Module, images: Tensor) -> None:
        self._images = images
        self._run: Callable[[Tensor], Live] = lambda pixels: tuple(phi(*trunk(pixels)))
        self._outputs, self._pull = vjp(self._run, images)  # type: ignore[misc]

    def pull(self, at_head: Live) -> Tensor:
        """Return the gradient at the pixels."""
        return self._pull(tuple(map(torch.Tensor.to, at_head, self._outputs)))[0]  # type: ignore[no-any-return]

    def push(self, tangent: Tensor) -> Live:
        """Return the tangents at the head's input; the forward pass runs again."""
        return jvp(self._run, (self._images,), (tangent,))[1]  # type: ignore[no-any-return]


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
