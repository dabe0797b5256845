"""Vanilla: fine-tuning and nothing else, the baseline with the same budget."""

from __future__ import annotations

from torch import Tensor

from hansfree.corrections.base import Correction
from hansfree.corrections.training import HeadBatch, WeightedHead


class Vanilla(Correction, name="vanilla"):
    """Fine-tune the head on the data as they are."""

    title = "Vanilla"

    def forward(self, head: WeightedHead, batch: HeadBatch) -> tuple[Tensor, Tensor | None]:
        """Return the logits; nothing is penalised."""
        return head(*batch.values), None
