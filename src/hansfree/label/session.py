"""One sitting at the labelling page: marks, ranking, judgement and table, without knowing of a browser."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hansfree.cavs import SignalCAV
from hansfree.errors import DataError, RunError
from hansfree.files import tell_path
from hansfree.label.finishing import Finish, describe_finish
from hansfree.label.judging import Background, Judgement, judge_marks, lacks_clean
from hansfree.label.marks import NO, UNKNOWN, YES, Marks, write_marks
from hansfree.label.opening import Material
from hansfree.label.ranking import FIRST_MARKS, Choice, Ranking

SCREEN = 12  # images to mark between two looks at the ranking: fewer would flicker, more would waste marks


@dataclass(frozen=True, kw_only=True)
class State:
    """What the page shows above the images."""

    images: int
    yes: int
    no: int
    proposed: int  # with the marked ones
    version: int  # of the marks: what a page holds of an older one is out of date
    can_undo: bool
    advice: str  # what to do next
    saved: str  # the path of the table
    judgement: Judgement | None  # of the marks as they are, or as they were while it is being judged
    is_judging: bool


@dataclass(frozen=True, kw_only=True)
class Ordered:
    """All images, the likeliest first; scores and marks by image."""

    order: list[int]
    scores: list[float] | None
    marks: list[int]
    proposed: list[int]


class Session:
    """Everything behind the page; calls may come from several threads.

    A mark is on disk before the call returns.
    """

    def __init__(self, material: Material) -> None:
        self.material = material
        self._marks = Marks(material.marks)
        self._ranking = Ranking(material.pooled, seed=material.seed)
        self._lock = threading.RLock()
        self._background = Background(self._judge)
        self._shown = np.zeros(len(material.names), dtype=bool)
        self._version = 0
        self._refresh()
        self._screen = self._choose()

    def close(self) -> None:
        """End the work in the background."""
        self._background.close()

    def state(self) -> State:
        """Return the counts and what is known about the direction."""
        with self._lock:
            yes, no = self._marks.count(YES), self._marks.count(NO)
            judgement, is_judging = self._background.look() if yes + no else (None, False)
            return State(
                images=len(self._shown),
                yes=yes,
                no=no,
                proposed=len(self._proposed()),
                version=self._version,
                can_undo=self._marks.steps > 0,
                advice=_advice(yes, no, len(self._shown)),
                saved=tell_path(self.material.table),
                judgement=judgement,
                is_judging=is_judging,
            )

    def mark(self, images: Sequence[int], *, has_artifact: bool) -> State:
        """Mark images, rank all others anew and write the table."""
        with self._lock:
            self._marks.set(images, has_artifact=has_artifact)
            self._refresh()
            self._save()
            return self.state()

    def undo(self) -> tuple[list[int], State]:
        """Take back the last step; return its images, none where there is no step left."""
        with self._lock:
            images = self._marks.undo()
            if images:
                self._refresh()
                self._save()
            return images, self.state()

    def screen(self) -> list[Choice]:
        """Return the images to mark now; they stay until the next screen is asked for."""
        with self._lock:
            return list(self._screen)

    def next_screen(self) -> list[Choice]:
        """Return the next images to mark; those passed over come last."""
        with self._lock:
            self._screen = self._choose()
            return list(self._screen)

    def ordered(self) -> Ordered:
        """Return all images, the likeliest first; in their own order before there is a ranking."""
        with self._lock:
            scores = self._scores
            order = np.arange(len(self._shown)) if scores is None else np.argsort(-scores, kind="stable")
            return Ordered(
                order=order.tolist(),
                scores=None if scores is None else np.round(scores.astype(np.float64), 3).tolist(),
                marks=self._marks.values.tolist(),
                proposed=self._proposed().tolist(),
            )

    def finish(self) -> Finish:
        """Return how to go on to a run, and what speaks against it; there has to be a ranking to go on with."""
        with self._lock:
            if self._scores is None:
                raise DataError(f"Not yet: {_advice(self._marks.count(YES), self._marks.count(NO), len(self._shown))}")
            self._save()
        self.wait()  # what the doctor says has to be of these very marks
        now = self.state()
        judgement = None if now.is_judging else now.judgement
        return describe_finish(self.material, judgement, unmarked=now.images - now.yes - now.no)

    def take(self, suspect: str) -> State:
        """Mark the images of a suspected cluster, as one step; what was marked before stays as it was."""
        found = self.material.suspects.get(suspect)
        if found is None:
            raise DataError(f"There is no suspect {suspect!r}. Known: {', '.join(self.material.suspects) or 'none'}.")
        with self._lock:
            unknown = [image for image in found.images if self._marks.values[image] == UNKNOWN]
            return self.mark(unknown, has_artifact=True) if unknown else self.state()

    def thumbnail(self, image: int) -> bytes:
        """Return a picture as JPEG."""
        return self.material.pictures.thumbnail(self._checked(image))

    def heatmap(self, image: int) -> bytes:
        """Return a picture that glows where the CAV of the marks looks."""
        row = self._checked(image)
        with self._lock:
            cav = self._cav
        if cav is None:
            raise DataError("A heatmap needs images marked with and without the artifact.")
        return self.material.heatmaps.show(row, cav)

    def wait(self, timeout: float = 60) -> bool:
        """Wait for the judgement of all marks; say whether it is there."""
        return self._background.wait(timeout)

    def _checked(self, image: int) -> int:
        if not 0 <= image < len(self._shown):
            raise DataError(f"There is no image {image}: they are numbered 0 to {len(self._shown) - 1}.")
        return image

    def _proposed(self) -> np.ndarray:
        values = self._marks.values
        likely = np.zeros(len(values), dtype=bool) if self._scores is None else self._scores > 0
        return np.flatnonzero((values == YES) | (likely & (values == UNKNOWN)))

    def _refresh(self) -> None:
        values = self._marks.values
        self._version += 1
        self._scores = self._ranking.score(values)
        self._cav = self._fit_cav(values)
        if (values != UNKNOWN).any():
            self._background.ask(values)

    def _fit_cav(self, values: np.ndarray) -> SignalCAV | None:
        """Return the direction that heatmaps show: the signal's outlines an artifact best of all (paper, Q1)."""
        rows = np.flatnonzero(values != UNKNOWN)
        if len(np.unique(values[rows])) < 2 or np.ptp(self.material.pooled[rows], axis=0).max() == 0:
            return None
        return SignalCAV().fit(self.material.pooled[rows], values[rows] == YES)

    def _choose(self) -> list[Choice]:
        values, material = self._marks.values, self.material
        short = lacks_clean(material.labels, values, material.biased_class, classes=len(material.class_names))
        chosen = self._ranking.choose(values, self._scores, count=SCREEN, shown=self._shown, short=short)
        if self._shown[[choice.image for choice in chosen]].any():
            self._shown[:] = False  # all were passed over once: begin anew
        self._shown[[choice.image for choice in chosen]] = True
        return chosen

    def _save(self) -> None:
        material = self.material
        proposed = None if self._scores is None else self._scores > 0
        try:
            write_marks(material.table, material.rows, self._marks.values, proposed, column=material.column)
        except OSError as error:
            raise RunError(
                f"{material.table} cannot be written ({error.strerror}): the last mark is not saved."
            ) from error

    def _judge(self, values: np.ndarray) -> Judgement:
        material = self.material
        return judge_marks(
            self._ranking,
            material.pooled,
            material.labels,
            values,
            cav=material.cav,
            names=material.names,
            class_names=material.class_names,
            biased_class=material.biased_class,
        )


def _advice(yes: int, no: int, images: int) -> str:
    missing = FIRST_MARKS - yes - no
    if yes + no == images:
        return "Every image is marked."
    if yes == 0 and missing <= 0:
        return "None has the artifact yet: go on, or look for one among all images."
    if missing > 0:
        some = "" if yes else ", at least one with the artifact"
        return f"Mark {missing} more image{'s' if missing > 1 else ''}{some}: then all others are ranked."
    if no == 0:
        return "Mark some without the artifact, too: so far unmarked images stand for them."
    return "Go on until the proposed ones are right: look through them in the list of all images."
