"""A method's strengths, one after the other: what each did, and the head of the one that is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hansfree.metrics import Score
from hansfree.selection.rules import Choice
from hansfree.selection.validator import Validation
from hansfree.training import TrainedHead


@dataclass(frozen=True, eq=False)
class StrengthPath:
    """What one method did along its strengths; only the chosen head's weights are kept."""

    strengths: tuple[float, ...]
    histories: tuple[tuple[Validation, ...], ...]  # per strength, after every epoch
    scores: tuple[list[Score], ...]  # per strength, on the test images
    choice: Choice
    best: TrainedHead | None


def walk_path(
    heads: Iterable[TrainedHead],
    choose: Callable[[Sequence[Validation]], Choice],
    score: Callable[[TrainedHead], list[Score]],
) -> StrengthPath:
    """Choose among heads as they come from training; only those that may still be taken are kept in memory."""
    strengths: list[float] = []
    histories: list[tuple[Validation, ...]] = []
    scores: list[list[Score]] = []
    kept: dict[int | None, TrainedHead] = {}
    choice = Choice(None, "no head was trained")
    for head in heads:
        strengths.append(head.strength)
        histories.append(head.history)
        scores.append(score(head))
        choice = choose([history[-1] for history in histories])
        kept[len(strengths) - 1] = head
        kept = {i: one for i, one in kept.items() if i == choice.index or i in choice.open}
    return StrengthPath(tuple(strengths), tuple(histories), tuple(scores), choice, kept.get(choice.index))
