"""Artifact labels and their table, the ranking of the other images, and diagnostics in the background."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansfree.cavs import CAV
from hansfree.cavs.diagnostics import diagnose_cav
from hansfree.data import read_table
from hansfree.discovery.label.ranking import (
    MIN_LABELS,
    NO,
    UNKNOWN,
    YES,
    ArtifactLabels,
    DebouncedWorker,
    LabelDiagnostics,
    Ranking,
    diagnose_labels,
    labels_of,
    needs_clean_labels,
    write_labels,
)
from hansfree.report import describe_diagnosis

STEPS = st.lists(st.tuples(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.booleans()), max_size=12)


@given(STEPS)
def test_undo_restores_every_state(steps: list[tuple[list[int], bool]]) -> None:
    labels = ArtifactLabels(np.full(10, UNKNOWN))
    states = []
    for images, has_artifact in steps:
        states.append(labels.values.copy())
        labels.set(images, has_artifact=has_artifact)
        assert set(labels.values[images]) == {YES if has_artifact else NO}
    assert labels.can_undo == bool(steps)
    for state, (images, _) in zip(reversed(states), reversed(steps)):
        assert labels.undo() == sorted(set(images))
        np.testing.assert_array_equal(labels.values, state)
    assert labels.undo() == []


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([UNKNOWN, NO, YES]), min_size=1, max_size=30), st.booleans())
def test_the_table_is_read_back(tmp_path_factory: pytest.TempPathFactory, values: list[int], ranked: bool) -> None:
    path = tmp_path_factory.mktemp("labels") / "artifacts.csv"
    rows = [{"image": f"a, {row}.png", "label": 'a "word"', "site": ""} for row in range(len(values))]
    labels, names = np.array(values), [row["image"] for row in rows]
    write_labels(path, rows, labels, np.ones(len(values), dtype=bool) if ranked else None, column="ruler")
    np.testing.assert_array_equal(labels_of(read_table(path, ()), names, column="ruler", place=path), labels)


# The ranking


def sample(n: int = 400, channels: int = 16, every: int = 20) -> tuple[np.ndarray, np.ndarray]:
    truth = np.arange(n) % every == 0
    noise = np.random.default_rng(0).normal(size=(n, channels))
    return (noise + np.outer(truth, np.arange(channels) < 4) * 5).astype(np.float32), truth


def labels_for(truth: np.ndarray, rows: range | list[int]) -> np.ndarray:
    labels = np.full(len(truth), UNKNOWN, dtype=np.int8)
    labels[list(rows)] = truth[list(rows)]
    return labels


@pytest.mark.parametrize("rows", [[0, 1, 2, 3, 20], [20 * row for row in range(MIN_LABELS)]])
def test_five_labels_find_a_clear_artifact(rows: list[int]) -> None:
    X, truth = sample()
    X[:, 15] = 3  # a dead channel
    scores = Ranking(X).score(labels_for(truth, rows))
    assert scores is not None
    assert (truth[np.argsort(-scores)[:20]]).mean() > 0.9


@pytest.mark.parametrize("rows", [[], [1, 2, 3, 4, 5, 6], [0, 1], [0, 1, 2, 20]])
def test_without_enough_labels_there_is_no_score(rows: list[int]) -> None:
    X, truth = sample()
    assert Ranking(X).score(labels_for(truth, rows)) is None
    assert Ranking(X[:8]).score(np.ones(8, dtype=np.int8)) is None


def test_a_screen_alternates_likely_and_uncertain_images() -> None:
    X, truth = sample()
    ranking, labels, scores = Ranking(X), labels_for(truth, range(30)), np.linspace(-2, 3, 400)
    chosen = ranking.choose(labels, scores, count=10)
    assert [choice.image for choice in chosen[::2]] == [399, 398, 397, 396, 395]
    assert [choice.why for choice in chosen] == ["likely", "uncertain"] * 5
    assert sorted(choice.image for choice in chosen[1::2]) == sorted(np.argsort(np.abs(scores))[:5].tolist())
    short = np.arange(400) % 2 == 0  # a third of the screen is then likely without the artifact
    chosen = ranking.choose(labels, scores, count=12, short=short)
    clean = [choice.image for choice in chosen if choice.why == "unlikely"]
    assert len(clean) == [choice.why for choice in chosen].count("likely") == 4
    assert all(short[image] and scores[image] < 0 and image >= 30 for image in clean)
    assert max(clean) > 60  # not only the unlikeliest
    assert len({choice.image for choice in chosen}) == 12


def test_the_first_images_are_spread_out() -> None:
    """One image in a hundred lies apart: twelve at random hold it in one case of nine, spread out in most."""
    X = np.random.default_rng(0).normal(size=(600, 8)).astype(np.float32)
    X[::100] += 30
    nothing = np.full(600, UNKNOWN, dtype=np.int8)
    screens = [Ranking(X, seed=seed).choose(nothing, None, count=12) for seed in range(20)]
    assert np.mean([any(choice.image % 100 == 0 for choice in screen) for screen in screens]) > 0.9
    equal = Ranking(np.ones((30, 4), dtype=np.float32)).choose(nothing[:30], None, count=12)
    assert len({choice.image for choice in equal}) == 12
    nothing[:2] = NO
    one, same, other = (Ranking(X, seed=seed).choose(nothing, None, count=12) for seed in (1, 1, 2))
    assert one == same != other
    assert not {0, 1} & {choice.image for choice in one}


def test_the_auc_is_of_held_out_images() -> None:
    X, truth = sample()
    assert Ranking(X).auc(labels_for(truth, range(100))) == pytest.approx(1, abs=0.05)
    noise = np.random.default_rng(1).normal(size=(400, 60)).astype(np.float32)
    found = Ranking(noise).auc(labels_for(truth, range(100)))  # 60 channels fit 100 labels by heart
    assert found is not None
    assert found < 0.9
    for rows in ([], [0], [0, 1, 2, 3, 4], [1, 2, 3, 4, 5], [0, 20, 40, 1, 2, 3, 4]):
        assert Ranking(X).auc(labels_for(truth, rows)) is None


# Diagnostics: two hundred images of two classes in turn; the artifact shifts the first channel

CLASS = np.arange(200) % 2
FILES = [f"{row:03}.png" for row in range(200)]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit no other solvers, which take most of the time."""
    monkeypatch.setattr(CAV, "from_marks", classmethod(lambda cls: {}))


def some_labels() -> np.ndarray:
    artifact_labels = np.full(200, UNKNOWN)
    artifact_labels[:40] = NO
    artifact_labels[1:30:2] = YES  # all malignant
    return artifact_labels


def features(artifact_labels: np.ndarray, shift: float = 4) -> np.ndarray:
    X = np.random.default_rng(0).normal(size=(200, 6))
    X[artifact_labels == YES, 0] += shift
    return X


def diagnose(X: np.ndarray, artifact_labels: np.ndarray, **given: Any) -> LabelDiagnostics:
    options: dict[str, Any] = {"cav": "signal", "names": FILES, "class_names": ("benign", "malignant"), **given}
    return diagnose_labels(Ranking(X), X, CLASS, artifact_labels, **{"biased_class": None, **options})


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("cav", ["signal", "pair"])  # labels are no pairs: the signal CAV stands for the pair CAV
def test_diagnostics_are_those_of_the_labelled_images_of_the_biased_class(cav: str) -> None:
    artifact_labels = some_labels()
    X = features(artifact_labels)
    found = diagnose(X, artifact_labels, cav=cav)
    inside = (CLASS == 1) & (artifact_labels != UNKNOWN)
    expected = diagnose_cav(
        X[inside],
        artifact_labels[inside] == YES,
        others=X[(CLASS == 0) & (artifact_labels == NO)],
    )
    verdict = describe_diagnosis(expected, unlabelled=int(((CLASS == 1) & (artifact_labels == UNKNOWN)).sum()))
    assert (found.level, found.verdict) == (expected.level, f"Within malignant: {verdict}")
    assert found.n_labels == 40
    assert found.auc is not None
    assert found.auc > 0.9
    assert diagnose(X, artifact_labels, biased_class=0).verdict.startswith("Over all classes: ")


@pytest.mark.usefixtures("alone")
def test_suspect_labels_are_named_and_constant_features_reported() -> None:
    artifact_labels = np.full(200, UNKNOWN)
    artifact_labels[1:120:2], artifact_labels[121:200:2] = YES, NO
    X = features(artifact_labels, shift=9)
    artifact_labels[7] = NO
    assert diagnose(X, artifact_labels, biased_class=1).verdict.endswith(": 007.png. Look at it.")
    found = diagnose(np.ones((200, 6)), some_labels())
    assert found.level == "unknown"
    assert "constant" in found.verdict


@pytest.mark.parametrize(("biased_class", "is_short"), [(None, True), (1, True), (0, False)])
def test_a_class_with_fewer_clean_labels_needs_some(biased_class: int | None, is_short: bool) -> None:
    found = needs_clean_labels(CLASS, some_labels(), biased_class, classes=2)
    assert (found is not None) == is_short
    if found is not None:
        np.testing.assert_array_equal(found, CLASS == 1)


def test_the_worker_skips_outdated_labels_and_survives_failures(caplog: pytest.LogCaptureFixture) -> None:
    begun, proceed = threading.Event(), threading.Event()
    seen: list[int] = []

    def work(artifact_labels: np.ndarray) -> LabelDiagnostics:
        seen.append(int(artifact_labels[0]))
        begun.set()
        proceed.wait(10)
        if seen[-1] == 4:
            raise np.linalg.LinAlgError("singular")
        return LabelDiagnostics(seen[-1], None, "unknown", "")

    worker = DebouncedWorker(work)
    try:
        assert worker.wait(10)
        worker.ask(np.array([1]))
        assert begun.wait(10)
        for number in (2, 3, 4):  # during the first call
            worker.ask(np.array([number]))
        assert worker.look() == (None, True)
        proceed.set()
        assert worker.wait(10)
        assert seen == [1, 4]
        failed, is_pending = worker.look()
        assert failed is not None
        assert (failed.n_labels, failed.level, is_pending) == (1, "unknown", False)
        assert "diagnostics failed" in failed.verdict
        assert "diagnostics failed" in caplog.text
        worker.ask(np.array([5]))
        worker.ask(np.array([6]))  # within the quiet time
        assert worker.wait(10)
        assert worker.look() == (LabelDiagnostics(6, None, "unknown", ""), False)
        assert seen == [1, 4, 6]
    finally:
        proceed.set()
        worker.close()
