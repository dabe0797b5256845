"""Vanilla: fine-tuning and nothing else, the baseline with the same budget."""

from __future__ import annotations

from torch import Tensor

from hansfree.corrections.base import Correction
from hansfree.training import Head, HeadBatch


class Vanilla(Correction, name="vanilla"):
    """Fine-tune the head on the data as they are."""

    def forward(self, head: Head, batch: HeadBatch) -> tuple[Tensor, Tensor | None]:
        """Return the logits; nothing is penalised."""
        return head(*batch.values), None
