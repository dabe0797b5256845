"""Bits that were proposed from the same activations agree with them: no test on those says that they are right."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hansfree.doctor.diagnosis import Diagnosis, Level
from hansfree.doctor.examination import LEAST
from hansfree.doctor.refits import Bits


@dataclass(frozen=True, eq=False)
class Basis:
    """Which samples are examined, and what has to be said about their bits."""

    rows: np.ndarray  # numbers of samples
    sentence: str
    is_circular: bool

    def tell(self, found: Diagnosis) -> Diagnosis:
        """Return the diagnosis with a verdict that says what it rests on; nothing circular is called good."""
        if not self.sentence:
            return found
        if not self.is_circular:
            return replace(found, verdict=f"{found.verdict} {self.sentence}")
        level: Level = "poor" if found.level == "poor" else "unknown"
        return replace(found, level=level, verdict=f"{self.sentence} {found.verdict}")


def choose_basis(has_artifact: Bits, is_marked: Bits | None) -> Basis:
    """Choose the samples whose bits a person gave; all, where they are too few, which then has to be said.

    Args:
        is_marked: Which bits a person gave, the others were proposed; None where nobody tells them apart.
    """
    everything = np.arange(len(has_artifact))
    if is_marked is None or is_marked.all():
        return Basis(everything, "", is_circular=False)
    n_proposed = int((~is_marked).sum())
    n_with, n_without = int((has_artifact & is_marked).sum()), int((~has_artifact & is_marked).sum())
    if min(n_with, n_without) >= LEAST:
        return Basis(
            np.flatnonzero(is_marked),
            f"Only the {n_with + n_without} marked images were examined; the other {n_proposed} that the direction is "
            "learned from have proposed bits.",
            is_circular=False,
        )
    return Basis(
        everything,
        f"This measures agreement with the labelling page's own proposal, not the truth: {n_proposed} of these "
        f"{len(everything)} bits were proposed, and a test needs {LEAST} marked images with the artifact and {LEAST} "
        f"without (there are {n_with} and {n_without}).",
        is_circular=True,
    )
