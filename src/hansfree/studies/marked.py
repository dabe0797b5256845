"""Which artifact bits a person gave: the labelling page fills the others in, and says so in a column of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hansfree.studies.columns import Row, read_bits


def by_hand(column: str) -> str:
    """Return the column that tells bits that a person gave, 1, from what the labelling page proposed, 0."""
    return f"{column}_marked"


def read_marked(rows: Sequence[Row], column: str, *, table: Path) -> np.ndarray | None:
    """Return which bits of ``column`` a person gave; None where the table does not tell."""
    hand = by_hand(column)
    return read_bits(rows, hand, table=table) if hand in rows[0] else None


def tell_marked(is_marked: np.ndarray, has_artifact: np.ndarray) -> str:
    """Say how many bits are a person's, how many were proposed, and what that means for a run."""
    n, marked = len(is_marked), int(is_marked.sum())
    if marked == n:
        return f"A person marked all {n:,} artifact bits."
    positive = int((has_artifact & ~is_marked).sum())
    return (
        f"Of the {n:,} artifact bits, a person marked {marked:,} and the labelling page proposed {n - marked:,} "
        f"({positive:,} of these with the artifact). All are taken for true: where a proposed one is wrong, so are the "
        "direction and the scores."
    )
