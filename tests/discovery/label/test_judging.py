"""The diagnostics of marks: what the doctor is asked, and that a person who goes on marking is not held up."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from hansfree.cavs.diagnostics import Diagnosis, diagnose_cav
from hansfree.discovery.label.ranking import (
    NO,
    UNKNOWN,
    YES,
    DebouncedWorker,
    LabelDiagnostics,
    Ranking,
    diagnose_labels,
    needs_clean_labels,
)

NAMES = ("benign", "malignant")
FILES = [f"{row:03}.png" for row in range(200)]


def judged(
    marks: np.ndarray, *, biased_class: int | None = None, cav: str = "signal"
) -> tuple[LabelDiagnostics, np.ndarray, np.ndarray]:
    """Two hundred images of two classes by turns; the artifact shifts the first channel."""
    labels = np.arange(200) % 2
    X = np.random.default_rng(0).normal(size=(200, 6))
    X[marks == YES, 0] += 4
    found = diagnose_labels(
        Ranking(X), X, labels, marks, cav=cav, names=FILES, class_names=NAMES, biased_class=biased_class
    )
    return found, X, labels


def some_marks() -> np.ndarray:
    marks = np.full(200, UNKNOWN)
    marks[:40] = NO
    marks[1:30:2] = YES  # all malignant
    return marks


def test_the_doctor_sees_the_marked_images_of_the_biased_class() -> None:
    marks = some_marks()
    found, X, labels = judged(marks)
    inside = (labels == 1) & (marks != UNKNOWN)
    others = X[(labels == 0) & (marks == NO)]
    unmarked = int(((labels == 1) & (marks == UNKNOWN)).sum())
    wanted = diagnose_cav(X[inside], marks[inside] == YES, others=others, unmarked=unmarked)
    assert (found.level, found.verdict) == (wanted.level, f"Within malignant: {wanted.verdict}")
    assert found.n_labels == 40
    assert found.auc is not None
    assert found.auc > 0.9


def test_marks_are_no_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def examined(*samples: np.ndarray, cav: str, **options: Any) -> Diagnosis:
        asked.append(cav)
        return diagnose_cav(*samples, cav=cav, **options)

    monkeypatch.setattr("hansfree.discovery.label.ranking.diagnose_cav", examined)
    for cav in ("pair", "signal"):
        judged(some_marks(), cav=cav)
    assert asked == ["signal", "signal"]


def test_a_class_with_too_few_marks_gives_way_to_all() -> None:
    found, *_ = judged(some_marks(), biased_class=0)
    assert found.verdict.startswith("Over all classes: ")


@pytest.mark.parametrize(
    ("yes", "no", "sentence"),
    [
        (1, 0, "Diagnostics need 3 more with the artifact and 4 more without it."),
        (4, 2, "Diagnostics need 2 more without it."),
        (0, 9, "Diagnostics need 4 more with the artifact."),
    ],
)
def test_too_few_marks_are_counted(yes: int, no: int, sentence: str) -> None:
    marks = np.full(200, UNKNOWN)
    marks[:yes], marks[yes : yes + no] = YES, NO
    found, *_ = judged(marks)
    assert (found.level, found.verdict) == ("unknown", sentence)


def test_images_that_look_wrongly_marked_have_the_names_of_their_files() -> None:
    labels, marks = np.arange(200) % 2, np.full(200, UNKNOWN)
    marks[1:120:2], marks[121:200:2] = YES, NO
    X = np.random.default_rng(0).normal(size=(200, 6))
    X[marks == YES, 0] += 9
    marks[7] = NO
    found = diagnose_labels(Ranking(X), X, labels, marks, cav="signal", names=FILES, class_names=NAMES, biased_class=1)
    assert found.verdict.endswith(": 007.png. Look at it.")


@pytest.mark.parametrize(("biased_class", "is_short"), [(None, True), (1, True), (0, False)])
def test_a_class_with_fewer_marks_without_than_with_lacks_clean_ones(biased_class: int | None, is_short: bool) -> None:
    found = needs_clean_labels(np.arange(200) % 2, some_marks(), biased_class, classes=2)
    assert (found is not None) == is_short
    if found is not None:
        assert np.array_equal(found, np.arange(200) % 2 == 1)


def test_what_cannot_be_examined_is_told_in_the_doctors_words() -> None:
    marks = some_marks()
    X = np.ones((200, 6))
    found = diagnose_labels(
        Ranking(X), X, np.arange(200) % 2, marks, cav="signal", names=FILES, class_names=NAMES, biased_class=None
    )
    assert found.level == "unknown"
    assert "constant" in found.verdict


def test_only_the_newest_marks_are_judged_and_nobody_waits() -> None:
    begun, go_on = threading.Event(), threading.Event()
    seen: list[int] = []

    def slow(marks: np.ndarray) -> LabelDiagnostics:
        seen.append(int(marks[0]))
        begun.set()
        go_on.wait(10)
        return LabelDiagnostics(int(marks[0]), None, "unknown", "")

    background = DebouncedWorker(slow)
    try:
        background.ask(np.array([1]))
        assert begun.wait(10)
        for number in (2, 3, 4):  # while the first is looked at
            background.ask(np.array([number]))
        assert background.look() == (None, True)
        go_on.set()
        assert background.wait(10)
        assert seen == [1, 4]
        assert background.look() == (LabelDiagnostics(4, None, "unknown", ""), False)
    finally:
        go_on.set()
        background.close()


def test_a_failure_is_logged_and_the_next_marks_are_judged(caplog: pytest.LogCaptureFixture) -> None:
    def fails_first(marks: np.ndarray) -> LabelDiagnostics:
        if marks[0] == 1:
            raise np.linalg.LinAlgError("singular")
        return LabelDiagnostics(int(marks[0]), 0.5, "fair", "")

    background = DebouncedWorker(fails_first)
    try:
        background.ask(np.array([1]))
        assert background.wait(10)
        assert "diagnostics failed" in caplog.text
        failed, _ = background.look()
        assert failed is not None
        assert (failed.level, failed.auc) == ("unknown", None)  # not what was said of earlier marks
        assert "diagnostics failed" in failed.verdict
        background.ask(np.array([2]))
        assert background.wait(10)
        assert background.look() == (LabelDiagnostics(2, 0.5, "fair", ""), False)
    finally:
        background.close()
