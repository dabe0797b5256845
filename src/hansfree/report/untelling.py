"""Scores that are shown and tell no better model from a worse one: why, and by which mark the table says so."""

from __future__ import annotations

from dataclasses import dataclass

from hansfree.report.reading import Results
from hansfree.selection.claims import WORST_GROUP

ONE_SIDED = "accuracy_biased"  # there a model that uses the artifact may be right
GROUPS = "accuracy_worst_group"


@dataclass(frozen=True)
class Footnote:
    """Why nobody is marked best by a score."""

    mark: str
    sentence: str


def footnote_of(results: Results, metric: str) -> Footnote | None:
    """Return why a score tells nobody best; None where it does."""
    if metric == ONE_SIDED and results.is_one_sided:
        return Footnote(
            "\N{DAGGER}",
            "Too few images with the artifact are of classes where the shortcut is wrong. Plain accuracy on them "
            "rewards the shortcut, so it tells no better model from a worse one, and nobody is marked best by it.",
        )
    if metric == GROUPS and not _is_claimed(results, WORST_GROUP):
        return Footnote(
            "\N{DOUBLE DAGGER}",
            "Some groups have too few images to be known (see “What cannot be known”). The worst of the others is "
            "shown; the worst of all may be another, so nobody is marked best by it.",
        )
    return None


def _is_claimed(results: Results, name: str) -> bool:
    claims = results.meta.get("claims") or ()
    return all(claim["can_be_made"] for claim in claims if claim["name"] == name)
