"""Diagnostics of samples whose true direction is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansfree._internal.progress import OneBar, silent
from hansfree.cavs import CAV, PairCAV, SignalCAV
from hansfree.cavs.base import samples_of_pairs
from hansfree.cavs.diagnostics import TARGET, THRESHOLDS, Diagnosis, diagnose_cav, quick_check
from hansfree.cavs.diagnostics.checks import compare_solvers
from hansfree.cavs.diagnostics.resampling import assign_folds, bootstrap_draw, disjoint_draws, shuffle_bits
from hansfree.errors import DataError, OptionError, UnknownNameError
from tests.cavs.samples import gaussian, size_for


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit no other solvers, which take most of the time."""
    monkeypatch.setattr(CAV, "from_marks", classmethod(lambda cls: {}))


def examined(angle: float, *, n_artifact: int = 40, n_clean: int = 80, channels: int = 64, **options) -> Diagnosis:
    X, bits, _ = gaussian(n_artifact, n_clean, channels, size=size_for(angle, n_artifact, n_clean, channels))
    return diagnose_cav(X, bits, **options)


@pytest.mark.parametrize("angle", [6.0, 15.0, 35.0])
def test_the_expected_error_is_the_true_one(angle: float) -> None:
    n_artifact, n_clean, channels = 40, 80, 200
    X, bits, truth = gaussian(n_artifact, n_clean, channels, size=size_for(angle, n_artifact, n_clean, channels))
    true_angle = np.degrees(np.arccos(SignalCAV().fit(X, bits).direction_ @ truth))
    diagnosis = diagnose_cav(X, bits)
    assert diagnosis.finding("expected_error").value == pytest.approx(true_angle, rel=0.12)
    assert diagnosis.level == {6.0: "good", 15.0: "fair", 35.0: "poor"}[angle]


def between_halves(error: np.ndarray) -> np.ndarray:
    return np.degrees(np.arccos(1 / (1 + 2 * np.tan(np.radians(error)) ** 2)))


def between_resamples(error: np.ndarray) -> np.ndarray:
    return np.degrees(np.arctan(np.sin(np.radians(error))))


def test_angles_between_halves_and_resamples_follow_theory() -> None:
    diagnosis = examined(15.0, n_artifact=60, n_clean=60, channels=300)
    assert diagnosis.finding("split_half_angle").value == pytest.approx(between_halves(15.0), rel=0.06)
    assert diagnosis.finding("bootstrap_angle").value == pytest.approx(between_resamples(15.0), rel=0.06)
    limits = {name: np.array([threshold.good, threshold.fair]) for name, threshold in THRESHOLDS.items()}
    assert limits["expected_error"][0] == TARGET
    np.testing.assert_allclose(limits["split_half_angle"], between_halves(limits["expected_error"]), atol=0.1)
    np.testing.assert_allclose(limits["bootstrap_angle"], between_resamples(limits["expected_error"]), atol=0.1)


def test_bits_without_meaning_are_refused() -> None:
    X, bits, _ = gaussian(40, 80, 64, size=0.0, seed=3)
    diagnosis = diagnose_cav(X, bits)
    assert diagnosis.level == "poor"
    assert not diagnosis.is_visible
    assert diagnosis.finding("permutation_p").value > 0.05
    assert diagnosis.finding("images_needed").value is None
    assert diagnosis.finding("suspect_labels").level == "unknown"
    assert diagnosis.finding("bootstrap_angle").value == pytest.approx(45, abs=4)


def test_planted_wrong_bits_are_found_on_both_sides() -> None:
    X, bits, _ = gaussian(60, 120, 20, size=8.0)
    wrong = [*np.flatnonzero(bits)[:2], *np.flatnonzero(~bits)[:3]]
    bits[wrong] = ~bits[wrong]
    diagnosis = diagnose_cav(X, bits, ids=[Path(f"image-{row}") for row in range(len(X))])
    assert {mark.id for mark in diagnosis.suspect_labels} == {f"image-{row}" for row in wrong}
    assert [mark.has_artifact for mark in diagnosis.suspect_labels].count(True) == 3
    odds = [mark.odds for mark in diagnosis.suspect_labels]
    assert odds == sorted(odds, reverse=True)
    assert all((mark.score < 0) == mark.has_artifact for mark in diagnosis.suspect_labels)
    assert diagnosis.finding("suspect_labels").value == 5
    assert Diagnosis.from_json(diagnosis.to_json()) == diagnosis


def test_a_direction_that_is_the_class_is_warned_of() -> None:
    X, bits, truth = gaussian(60, 60, 30, size=10.0)
    rng = np.random.default_rng(5)
    noise = 3.0 + rng.normal(size=(60, 30))
    side = np.linalg.svd(truth[None])[2][1]  # at right angles to the artifact
    same, apart = (diagnose_cav(X, bits, others=noise - 10 * way) for way in (truth, side))
    assert same.finding("class_overlap").value > 0.95
    assert same.level == "poor"
    assert same.finding("class_overlap").level == "poor"
    assert abs(apart.finding("class_overlap").value) < 0.1
    assert apart.finding("class_overlap").level == "good"
    assert apart.level == "good"


def test_solvers_are_compared_except_those_that_the_samples_defeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    clear = examined(6.0)
    cosines = np.array(clear.agreement.cosines)
    assert clear.agreement.names == tuple(CAV.from_marks())
    np.testing.assert_allclose(cosines, cosines.T)
    np.testing.assert_allclose(np.diagonal(cosines), 1.0)
    assert Diagnosis.from_json(clear.to_json()) == clear
    with pytest.raises(DataError, match="expected_error"):
        clear.finding("angle")
    X, bits, _ = gaussian(6, 8, 3, size=3.0)
    cav = SignalCAV().fit(1e-7 * X, bits)  # too small for the penalties of the lasso
    found = compare_solvers(1e-7 * X, bits, cav, seed=0, progress=silent)
    assert "lasso" not in found.names
    assert "signal" in found.names


@pytest.mark.parametrize("cav", [name for name in CAV.members() if name != "signal"])
def test_every_cav_can_be_examined(cav: str) -> None:
    X, bits, _ = gaussian(16, 20, 6, size=6.0)
    diagnosis = diagnose_cav(X, bits, cav=cav)
    assert diagnosis.cav == cav
    assert diagnosis.finding("held_out_auc").value > 0.95
    assert diagnosis.finding("permutation_p").level == "good"


@pytest.mark.parametrize(("cav", "n_artifact"), [("signal", 50), ("ridge", 12)])
def test_progress_is_one_bar_that_is_just_full(cav: str, n_artifact: int, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[object] = []

    def watch(steps, *, total, label):
        events.extend((label, total))
        for step in steps:
            events.append(step)
            yield step
        events.append("asked for more")

    monkeypatch.undo()
    monkeypatch.setattr(OneBar, "finish", lambda bar: events.append("finished"))
    X, bits, _ = gaussian(n_artifact, 20, 6, size=3.0)
    diagnose_cav(X, bits, cav=cav, progress=watch)
    label, total, *steps, last = events
    assert (label, steps, last) == ("CAV diagnostics", list(range(total)), "finished")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "other"}', '{"format": "hansfree.diagnosis.1"}'])
def test_what_is_no_diagnosis_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="no diagnosis"):
        Diagnosis.from_json(text)


BITS = np.arange(12) % 2 == 0
NOISE = np.random.default_rng(0).normal(size=(12, 3))


@pytest.mark.parametrize(
    ("X", "bits", "options", "error", "words"),
    [
        (NOISE, np.arange(12) < 3, {}, DataError, "at least 4 images with the artifact.*there are 3"),
        (NOISE, np.arange(12) >= 3, {}, DataError, "at least 4 images without the artifact"),
        (NOISE, BITS[:5], {}, DataError, "one artifact label for each of 12 samples"),
        (NOISE, BITS * 2, {}, DataError, "0 or 1"),
        (np.ones((12, 3)), BITS, {}, DataError, "constant"),
        (np.where(np.arange(12)[:, None] == 4, np.nan, NOISE), BITS, {}, DataError, "contains NaN"),
        (NOISE[:, 0], BITS, {}, DataError, "Expected 2D array"),
        (NOISE, BITS, {"others": NOISE[:, :2]}, DataError, "other classes with 3 channels"),
        (NOISE, BITS, {"paired": True}, DataError, "all clean samples and then"),
        (NOISE, BITS, {"in_class": BITS[:3]}, DataError, "one class label for each"),
        (NOISE, BITS, {"ids": [1, 2]}, DataError, "one id"),
        (NOISE, BITS, {"seed": -1}, OptionError, "seed"),
        (NOISE, BITS, {"cav": "signel"}, UnknownNameError, "Did you mean 'signal'"),
    ],
)
def test_what_cannot_be_examined_is_refused(X, bits, options, error, words) -> None:
    with pytest.raises(error, match=words):
        diagnose_cav(X, bits, **options)


N, CHANNELS = 40, 20


def pairs(*, size: float, spread: float, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Images that differ by ``spread``, and the same ones moved by ``size`` along the first channel with ``noise``."""
    rng = np.random.default_rng(0)
    clean = spread * rng.normal(size=(N, CHANNELS))
    return clean, clean + noise * rng.normal(size=(N, CHANNELS)) + size * np.eye(CHANNELS)[0]


def test_the_expected_error_is_that_of_the_mean_change() -> None:
    clean, biased = pairs(size=3.0, spread=4.0, noise=1.0)
    direction = PairCAV(count=1).fit_pairs(clean, biased).direction_
    true_angle = np.degrees(np.arccos(direction[0]))
    samples, bits = samples_of_pairs(clean, biased)
    found = diagnose_cav(samples, bits, cav="pair", paired=True)
    assert found.finding("expected_error").value == pytest.approx(true_angle, rel=0.2)
    assert found.is_paired
    single = diagnose_cav(samples, bits, cav="pair")
    value = single.finding("expected_error").value
    assert value is not None
    assert value > 2 * true_angle  # the spread between images, which no pair has


def test_the_class_is_that_of_its_own_samples() -> None:
    """The other class lies along the artifact's direction; pairs of both are given."""
    clean, biased = pairs(size=3.0, spread=0.5, noise=0.5)
    of_class = np.arange(N) % 2 == 0
    shift = -6.0 * np.outer(~of_class, np.eye(CHANNELS)[0])
    samples, bits = samples_of_pairs(clean + shift, biased + shift)
    found = diagnose_cav(
        samples, bits, cav="pair", paired=True, in_class=np.tile(of_class, 2), others=(clean + shift)[~of_class]
    )
    overlap = found.finding("class_overlap")
    assert overlap.value == pytest.approx(1.0, abs=0.1)
    assert overlap.level == "poor"
    assert found.suspect_labels == ()


@given(st.integers(4, 30), st.integers(0, 1000))
def test_whole_pairs_are_drawn(n: int, seed: int) -> None:
    rng, bits = np.random.default_rng(seed), np.arange(2 * n) >= n
    shuffled = shuffle_bits(bits, rng, paired=True)
    np.testing.assert_array_equal(shuffled[:n], ~shuffled[n:])
    first, second = disjoint_draws(shuffled, n // 2, rng, paired=True)
    assert not np.any(first * second)
    assert first.sum() == second.sum() == 2 * (n // 2)
    redrawn = bootstrap_draw(bits, rng, paired=True)
    assert redrawn.sum() == 2 * n
    fold_of = assign_folds(bits, 4, rng, paired=True)
    assert len(np.unique(fold_of)) == 4
    for drawn in (first, second, redrawn, fold_of):
        np.testing.assert_array_equal(drawn[:n], drawn[n:])


@pytest.mark.parametrize("cav", ["signal", "ridge"])
def test_bits_that_show_are_seen(cav: str) -> None:
    X, bits, _ = gaussian(30, 40, 6, size=2.0)
    seen = quick_check(X, bits, cav=cav, seed=0)
    assert seen.is_visible
    assert seen.auc > 0.8


def test_proposed_bits_do_not_count_as_truth() -> None:
    """There is no artifact: bits were read off from the activations, and a person who marks flips a coin."""
    rng = np.random.default_rng(0)
    X, is_marked = rng.normal(size=(200, 6)), np.arange(200) < 60
    circular = X[:, 0] > 0
    bits = np.where(is_marked, rng.random(200) < 0.5, circular)
    assert diagnose_cav(X, bits).finding("held_out_auc").value > 0.75  # agreement with itself
    found = diagnose_cav(X, bits, is_marked=is_marked)
    assert (found.scores, found.level) == (diagnose_cav(X[:60], bits[:60]).scores, "poor")
    assert found.proposed is not None
    assert (found.proposed.n, found.proposed.n_with + found.proposed.n_without) == (140, 60)
    plain, few = (diagnose_cav(X, circular, is_marked=np.arange(200) < marked) for marked in (200, 3))
    assert plain.proposed is None
    assert plain.level != "poor"
    assert (few.findings, few.level) == (plain.findings, "unknown")  # nothing circular is called good
