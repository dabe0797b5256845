"""RRR, right for the right reasons: penalise the input gradient on the artifact's pixels (Ross et al., 2017)."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.func import jvp
from torch.utils.data import Dataset, default_collate
from typing_extensions import Self

from hansfree.activations import Activations
from hansfree.cavs import CAV
from hansfree.corrections.base import Correction
from hansfree.datasets.base import Example
from hansfree.errors import DataError, OptionError
from hansfree.split import Split
from hansfree.training import FineTuning, Head, HeadBatch


class RRR(Correction, name="rrr"):
    """Fine-tune with a penalty on the gradient of the log-probabilities at the pixels of the artifact's mask.

    The trunk is frozen as for the others, so no second-order pass through it is needed: the gradient goes down to the
    pixels once, its masked part comes back up as one tangent, and only the head is differentiated twice. Images
    without artifact have an empty mask and cost nothing.

    Args:
        images: The images of the activations, in the same order, as :class:`~hansfree.datasets.Example` with masks.
        target: ``"sum"`` of all log-probabilities (the original), or the log-probability of one class.
        norm: ``"squared"``, or ``"cosine"``: the share of the squared gradient that lies on the mask.
    """

    has_strength = True
    grid = (1e-1, 1e1, 1e3, 1e5)
    can_stack = False

    def __init__(
        self,
        images: Dataset[Any],
        *,
        strength: float = 1.0,
        target: Literal["sum"] | int = "sum",
        norm: Literal["squared", "cosine"] = "squared",
        tuning: FineTuning | None = None,
    ) -> None:
        super().__init__(strength=strength, tuning=tuning)
        if norm not in ("squared", "cosine"):
            raise OptionError(f"norm is {norm!r}; allowed are 'squared' and 'cosine'.")
        if isinstance(target, str) and target != "sum":
            raise OptionError(f"target is {target!r}; allowed are 'sum' and a class number.")
        self.images = images
        self.target = target
        self.norm = norm

    @classmethod
    def for_run(cls, *, cav: CAV, images: Dataset[Any], tuning: FineTuning) -> Self:
        """Make a member on the run's images."""
        return cls(images, tuning=tuning)

    def describe(self) -> dict[str, str]:
        """Add target and norm."""
        return {**super().describe(), "target": str(self.target), "norm": self.norm}

    def check(self, cut: Split, activations: Activations) -> None:
        """Refuse images that are not those of the activations, or that carry no mask."""
        if len(self.images) != len(activations):  # type: ignore[arg-type]
            raise DataError(
                f"RRR got {len(self.images)} images for {len(activations)} activations."  # type: ignore[arg-type]
            )
        first = self.images[0]
        if not isinstance(first, Example):
            raise DataError(f"RRR needs images with masks (Example), got {type(first).__name__}.")
        if int(first.id) != int(activations.ids[0]):
            raise DataError("RRR's images are not in the order of the activations.")

    def forward(self, head: Head, batch: HeadBatch) -> tuple[Tensor, Tensor | None]:
        """Return the logits of all images and the penalty of those with a mask."""
        logits = head(*batch.values)
        marked = np.flatnonzero(self._may_have_mask(batch.rows))
        if not len(marked):
            return logits, None
        examples = default_collate([self.images[int(row)] for row in batch.rows[marked]])
        device = batch.labels.device
        penalty = torch.zeros(len(batch.rows), device=device)
        images, masks = examples.image.to(device), examples.mask[:, None].to(device)
        return logits, penalty.index_put(
            (torch.from_numpy(marked).to(device),), self._penalty(head, batch, images, masks)
        )

    def _penalty(self, head: Head, batch: HeadBatch, images: Tensor, masks: Tensor) -> Tensor:
        def to_head(pixels: Tensor) -> tuple[Tensor, ...]:
            return tuple(batch.phi(*batch.trunk(pixels)))

        pixels = images.requires_grad_()
        reached = to_head(pixels)
        inputs = tuple(tensor.detach().requires_grad_() for tensor in reached)
        log_probabilities = head(*inputs).log_softmax(1)
        chosen = log_probabilities.sum() if self.target == "sum" else log_probabilities[:, self.target].sum()
        at_head = torch.autograd.grad(chosen, inputs, create_graph=True)
        (gradient,) = torch.autograd.grad(reached, pixels, [part.detach() for part in at_head])

        value, pull = self._size(gradient, masks)
        _, back_up = jvp(to_head, (pixels.detach(),), (pull,))
        change = sum((part * tangent).flatten(1).sum(1) for part, tangent in zip(at_head, back_up))
        return value + 2 * (change - change.detach())  # the value of the penalty, with the gradient of 2 pull . g

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
