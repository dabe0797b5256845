"""How far the marks can be trusted: AUC and the doctor's verdict, worked out while the person goes on marking."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hansfree.cavs import CAV, SignalCAV
from hansfree.doctor import Level, examine_cav
from hansfree.doctor.examination import LEAST
from hansfree.errors import DataError
from hansfree.label.marks import NO, UNKNOWN, YES
from hansfree.label.ranking import Ranking

logger = logging.getLogger(__name__)

_QUIET = 0.4  # seconds without a mark
_FAILED = "These marks could not be judged; the terminal says why. Go on marking."


@dataclass(frozen=True)
class Judgement:
    """What can be said from so many marks."""

    marks: int
    auc: float | None
    level: Level
    verdict: str


def judge_marks(
    ranking: Ranking,
    pooled: np.ndarray,
    labels: np.ndarray,
    marks: np.ndarray,
    *,
    cav: str,
    names: Sequence[str],
    class_names: tuple[str, ...],
    biased_class: int | None,
) -> Judgement:
    """Return the held-out AUC over the marks, and the doctor's verdict on the CAV that a run would fit.

    Only marked images count. Bits that were proposed come from the same activations, and would agree with them.

    Args:
        cav: One that is learned from pairs has none here: the signal-CAV of the marks is examined in its place.
        names: Of the images, for those that look wrongly marked.
        biased_class: None takes the one with the most artifact marks.
    """
    found = Judgement(int((marks != UNKNOWN).sum()), ranking.auc(marks), "unknown", "")
    yes, no = _count(labels, marks, len(class_names))
    if biased_class is None:
        biased_class = _likeliest(yes, no)
    lacking = [
        f"{LEAST - count} more {what}"
        for count, what in ((int(yes.sum()), "with the artifact"), (int(no.sum()), "without it"))
        if count < LEAST
    ]
    if lacking:
        return replace(found, verdict=f"The doctor needs {' and '.join(lacking)}.")
    looked_at, words = np.ones(len(marks), dtype=bool), "Over all classes: "
    others = np.empty((0, pooled.shape[1]))
    if min(yes[biased_class], no[biased_class]) >= LEAST:  # as in a run, which learns within the biased class
        looked_at, words = labels == biased_class, f"Within {class_names[biased_class]}: "
        others = pooled[(labels != biased_class) & (marks == NO)]
    examined = SignalCAV.name if CAV.named(cav).needs_pairs else cav
    inside = np.flatnonzero(looked_at & (marks != UNKNOWN))
    try:
        diagnosis = examine_cav(
            pooled[inside],
            marks[inside] == YES,
            cav=examined,
            others=others if len(others) >= LEAST else None,
            ids=[names[row] for row in inside.tolist()],
            unmarked=int((looked_at & (marks == UNKNOWN)).sum()),
        )
    except DataError as error:  # features that do not vary, or a solver that wants more samples
        return replace(found, verdict=str(error))
    return replace(found, level=diagnosis.level, verdict=words + diagnosis.verdict)


def lacks_clean(labels: np.ndarray, marks: np.ndarray, biased_class: int | None, *, classes: int) -> np.ndarray | None:
    """Return which images are of the biased class, if fewer of them are marked without the artifact than with it.

    The direction rests on both, and on the rarer kind most. Screens of likely images leave out the other kind. Before
    there are enough for the doctor, to find the artifact comes first.
    """
    yes, no = _count(labels, marks, classes)
    biased = _likeliest(yes, no) if biased_class is None else biased_class
    return np.asarray(labels == biased) if no[biased] < yes[biased] >= LEAST else None


def _count(labels: np.ndarray, marks: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how many images of each class are marked with the artifact, and how many without it."""
    return (
        np.bincount(labels[marks == YES], minlength=classes),
        np.bincount(labels[marks == NO], minlength=classes),
    )


def _likeliest(yes: np.ndarray, no: np.ndarray) -> int:
    """Return the class with the most artifact marks; of equals the one of whose marks they are the larger share."""
    return int(np.lexsort((yes / np.maximum(yes + no, 1), yes))[-1])


class Background:
    """Calls a function with the newest marks, one call at a time, outside of whoever asks."""

    def __init__(self, work: Callable[[np.ndarray], Judgement]) -> None:
        self._work = work
        self._changed = threading.Condition()
        self._pending: np.ndarray | None = None
        self._asked = 0
        self._is_busy = self._is_closed = False
        self._latest: Judgement | None = None
        self._thread = threading.Thread(target=self._run, name="hansfree label", daemon=True)
        self._thread.start()

    def look(self) -> tuple[Judgement | None, bool]:
        """Return what was found last, and whether newer marks are being looked at, or will be."""
        with self._changed:
            return self._latest, self._is_busy or self._pending is not None

    def ask(self, marks: np.ndarray) -> None:
        """Look at these marks next, instead of any that still wait."""
        with self._changed:
            self._pending = marks.copy()
            self._asked += 1
            self._changed.notify_all()

    def wait(self, timeout: float) -> bool:
        """Wait until all that was asked is answered; say whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._is_busy and self._pending is None, timeout)

    def close(self) -> None:
        """End after the call that is under way."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()

    def _wait_for_quiet(self) -> None:
        """Let marks that follow each other quickly pass: the ranking after them is what a person waits for."""
        seen = -1
        while seen != self._asked and not self._is_closed:
            seen = self._asked
            self._changed.wait(_QUIET)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending is not None or self._is_closed)
                self._wait_for_quiet()
                if self._pending is None or self._is_closed:
                    return
                marks, self._pending, self._is_busy = self._pending, None, True
            try:
                found = self._work(marks)
            except Exception:  # marking must go on, whatever a solver makes of the marks
                logger.exception("The marks could not be judged.")
                found = Judgement(int((marks != UNKNOWN).sum()), None, "unknown", _FAILED)
            with self._changed:
                self._latest, self._is_busy = found, False
                self._changed.notify_all()
