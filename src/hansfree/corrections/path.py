"""The strength path: train, validate and select, keeping only candidates that can still be selected."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hansfree.corrections.selection import Select, Selection, Validation
from hansfree.corrections.training import TrainedHead
from hansfree.metrics import Score


@dataclass(frozen=True, eq=False)
class StrengthPath:
    """Every strength of one method with its validations and scores; only the selected head's weights are stored."""

    strengths: tuple[float, ...]
    histories: tuple[tuple[Validation, ...], ...]  # per strength, after every epoch
    scores: tuple[list[Score], ...]  # per strength, on the test images
    selection: Selection
    best: TrainedHead | None

    @property
    def final(self) -> Validation | None:
        """The last validation of the selected head."""
        return None if self.selection.index is None else self.histories[self.selection.index][-1]


def fit_path(
    candidates: Iterable[TrainedHead],
    select: Select,
    *,
    score: Callable[[TrainedHead], list[Score]] | None = None,
) -> StrengthPath:
    """Select among candidates as they come from training.

    Args:
        candidates: with validations in their histories, one per strength, from the weakest to the strongest.
        select: a rule (`SelectionRule.selector`), given the last validation of each candidate.
        score: scores each candidate on test images.
    """
    strengths: list[float] = []
    histories: list[tuple[Validation, ...]] = []
    scores: list[list[Score]] = []
    stored: dict[int | None, TrainedHead] = {}
    selection = Selection(None, "no candidate was trained")
    for head in candidates:
        strengths.append(head.strength)
        histories.append(head.history)
        scores.append([] if score is None else score(head))
        selection = select([history[-1] for history in histories])
        stored[len(strengths) - 1] = head
        stored = {i: one for i, one in stored.items() if i == selection.index or i in selection.contenders}
    return StrengthPath(tuple(strengths), tuple(histories), tuple(scores), selection, stored.get(selection.index))
