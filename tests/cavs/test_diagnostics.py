"""Diagnostics of samples whose true direction is known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansfree._internal.progress import OneBar, silent
from hansfree.cavs import CAV, PairCAV, SignalCAV
from hansfree.cavs.base import samples_of_pairs
from hansfree.cavs.diagnostics import (
    TARGET,
    THRESHOLDS,
    Diagnosis,
    SuspectLabel,
    choose_basis,
    diagnose_cav,
    level_of,
    quick_check,
)
from hansfree.cavs.diagnostics.diagnosis import Agreement
from hansfree.cavs.diagnostics.findings import Measured, describe, judge
from hansfree.cavs.diagnostics.resampling import (
    HeldOut,
    Null,
    Repeats,
    assign_folds,
    bootstrap_draw,
    disjoint_draws,
    shuffle_bits,
)
from hansfree.errors import DataError, OptionError, UnknownNameError
from tests.cavs.samples import gaussian, size_for


def examined(angle: float, *, n_artifact: int = 40, n_clean: int = 80, channels: int = 64, **options) -> Diagnosis:
    X, bits, _ = gaussian(n_artifact, n_clean, channels, size=size_for(angle, n_artifact, n_clean, channels))
    return diagnose_cav(X, bits, **options)


@pytest.fixture(scope="module")
def clear() -> Diagnosis:
    return examined(6.0)


@pytest.mark.parametrize("angle", [6.0, 15.0, 35.0])
def test_the_expected_error_is_the_true_one(angle: float) -> None:
    n_artifact, n_clean, channels = 40, 80, 200
    X, bits, truth = gaussian(n_artifact, n_clean, channels, size=size_for(angle, n_artifact, n_clean, channels))
    true_angle = np.degrees(np.arccos(SignalCAV().fit(X, bits).direction_ @ truth))
    diagnosis = diagnose_cav(X, bits)
    assert diagnosis.finding("expected_error").value == pytest.approx(true_angle, rel=0.12)
    assert diagnosis.level == {6.0: "good", 15.0: "fair", 35.0: "poor"}[angle]


def test_angles_between_halves_and_of_the_bootstrap_follow_theory() -> None:
    diagnosis = examined(15.0, n_artifact=60, n_clean=60, channels=300)
    tan = np.tan(np.radians(15.0))
    between = np.degrees(np.arccos(1 / (1 + 2 * tan**2)))
    assert diagnosis.finding("split_half_angle").value == pytest.approx(between, rel=0.06)
    redrawn = np.degrees(np.arctan(np.sin(np.radians(15.0))))
    assert diagnosis.finding("bootstrap_angle").value == pytest.approx(redrawn, rel=0.06)


def test_the_need_is_met_by_that_many_images() -> None:
    few = examined(20.0, n_artifact=40, n_clean=40, channels=200)
    need = few.finding("images_needed").value
    assert need is not None
    n = round(need)
    X, bits, _ = gaussian(n, n, 200, size=size_for(20.0, 40, 40, 200), seed=1)
    assert diagnose_cav(X, bits).finding("expected_error").value == pytest.approx(10.0, abs=1.0)


def test_bits_without_meaning_are_refused() -> None:
    X, bits, _ = gaussian(40, 80, 64, size=0.0, seed=3)
    diagnosis = diagnose_cav(X, bits)
    assert diagnosis.level == "poor"
    assert diagnosis.verdict.startswith("Do not use this direction")
    assert diagnosis.finding("permutation_p").value > 0.05
    assert diagnosis.finding("images_needed").value is None
    assert diagnosis.finding("suspect_labels").level == "unknown"
    assert diagnosis.finding("bootstrap_angle").value == pytest.approx(45, abs=4)


def test_p_values_of_noise_are_uniform() -> None:
    values = []
    for seed in range(30):
        X, bits, _ = gaussian(10, 20, 8, size=0.0, seed=100 + seed)
        X = X - X.mean(axis=0)
        repeats = Repeats(SignalCAV().fit(X, bits), X, bits, seed=seed, progress=silent)
        values.append(np.mean(repeats.null().auc >= repeats.held_out().auc))
    assert 0.3 < np.mean(values) < 0.7  # the mean of 30 uniform numbers is within 0.5 ± 0.16 but once in 400
    assert min(values) < 0.25 < 0.75 < max(values)


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
    assert "5 images look wrongly labelled (3 listed with the artifact, 2 without)" in diagnosis.verdict


def test_a_direction_that_is_the_class_is_warned_of() -> None:
    X, bits, truth = gaussian(60, 60, 30, size=10.0)
    rng = np.random.default_rng(5)
    noise = 3.0 + rng.normal(size=(60, 30))
    side = np.linalg.svd(truth[None])[2][1]  # at right angles to the artifact
    same, apart = (diagnose_cav(X, bits, others=noise - 10 * way) for way in (truth, side))
    assert same.finding("class_overlap").value > 0.95
    assert same.level == "poor"
    assert "removes the class" in same.verdict
    assert abs(apart.finding("class_overlap").value) < 0.1
    assert apart.finding("class_overlap").level == "good"
    assert apart.level == "good"


def test_the_overlap_is_not_drawn_to_the_opposite_by_shared_noise() -> None:
    """The clean images stand in both directions; fitted on the same ones, pure noise would give about -0.5."""
    X, bits, _ = gaussian(40, 40, 200, size=0.0)
    others = 3.0 + np.random.default_rng(6).normal(size=(4000, 200))
    found = diagnose_cav(X, bits, others=others).finding("class_overlap")
    assert abs(found.value) < 0.1
    assert found.level == "unknown"


def test_all_solvers_are_compared(clear: Diagnosis) -> None:
    cosines = np.array(clear.agreement.cosines)
    assert clear.agreement.names == tuple(CAV.from_marks())
    np.testing.assert_allclose(cosines, cosines.T)
    np.testing.assert_allclose(np.diagonal(cosines), 1.0)


@pytest.mark.parametrize("cav", [name for name in CAV.members() if name != "signal"])
def test_every_cav_can_be_examined(cav: str) -> None:
    X, bits, _ = gaussian(20, 30, 8, size=6.0)
    diagnosis = diagnose_cav(X, bits, cav=cav)
    assert diagnosis.cav == cav
    assert diagnosis.finding("held_out_auc").value > 0.95
    assert diagnosis.finding("permutation_p").level == "good"
    is_pattern = cav == "pair"  # of single samples it is the difference of the means, as signal
    assert ("mean shift would stay" in diagnosis.finding("expected_error").sentence) == is_pattern


@pytest.fixture(scope="module")
def one() -> Diagnosis:
    X, bits, _ = gaussian(10, 14, 6, size=4.0)
    return diagnose_cav(X, bits)


@settings(max_examples=5, deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(-50, 50), st.integers(0, 100))
def test_units_origin_and_axes_do_not_matter(one: Diagnosis, scale: float, offset: float, seed: int) -> None:
    X, bits, _ = gaussian(10, 14, 6, size=4.0)
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(6, 6)))[0]
    other = diagnose_cav(scale * (X @ rotation) + offset, bits)
    for name in ("expected_error", "split_half_angle", "bootstrap_angle", "held_out_auc", "permutation_p"):
        assert other.finding(name).value == pytest.approx(one.finding(name).value, rel=1e-4), name
        assert other.finding(name).level == one.finding(name).level
    np.testing.assert_allclose(other.scores, one.scores, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("cav", "n_artifact"), [("signal", 12), ("signal", 90), ("ridge", 12)])
def test_progress_is_one_bar_that_is_just_full(cav: str, n_artifact: int, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[object] = []

    def watch(steps, *, total, label):
        events.extend((label, total))
        for step in steps:
            events.append(step)
            yield step
        events.append("asked for more")

    monkeypatch.setattr(OneBar, "finish", lambda bar: events.append("finished"))
    X, bits, _ = gaussian(n_artifact, 20, 6, size=3.0)
    diagnose_cav(X, bits, cav=cav, progress=watch)
    label, total, *steps, last = events
    assert (label, steps, last) == ("CAV diagnostics", list(range(total)), "finished")


def test_json_round_trip(clear: Diagnosis) -> None:
    text = clear.to_json()
    assert Diagnosis.from_json(text) == clear
    assert json.loads(text)["verdict"] == clear.verdict
    X, bits, _ = gaussian(60, 60, 10, size=8.0)
    bits[np.flatnonzero(bits)[0]] = False
    with_suspects = diagnose_cav(X, bits, ids=np.arange(120), others=X[:10])
    assert with_suspects.suspect_labels
    assert Diagnosis.from_json(with_suspects.to_json()) == with_suspects


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "other"}', '{"format": "hansfree.diagnosis.1"}'])
def test_what_is_no_diagnosis_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="no diagnosis"):
        Diagnosis.from_json(text)


def test_an_unknown_finding_is_an_error_that_lists_them(clear: Diagnosis) -> None:
    with pytest.raises(DataError, match="expected_error"):
        clear.finding("angle")


BITS = np.arange(12) % 2 == 0
NOISE = np.random.default_rng(0).normal(size=(12, 3))


@pytest.mark.parametrize(
    ("X", "bits", "options", "error", "words"),
    [
        (NOISE, np.arange(12) < 3, {}, DataError, "at least 4 images with the artifact.*there are 3"),
        (NOISE, np.arange(12) >= 3, {}, DataError, "at least 4 images without the artifact"),
        (NOISE, BITS[:5], {}, DataError, "one artifact label for each of 12 samples"),
        (NOISE, BITS * 2, {}, DataError, "0 or 1"),
        (NOISE, ["no", "yes"] * 6, {}, DataError, "0 or 1"),
        (np.ones((12, 3)), BITS, {}, DataError, "constant"),
        (np.where(np.arange(12)[:, None] == 4, np.nan, NOISE), BITS, {}, DataError, "1 of 12 samples hold NaN"),
        (NOISE[:, 0], BITS, {}, DataError, "Expected 2D array"),
        ([["a"] * 3] * 12, BITS, {}, DataError, "could not convert"),
        (NOISE, BITS, {"others": NOISE[:, :2]}, DataError, "other classes with 3 channels"),
        (NOISE, BITS, {"others": NOISE * np.inf}, DataError, "finite"),
        (NOISE, BITS, {"ids": [1, 2]}, DataError, "one id"),
        (NOISE, BITS, {"seed": -1}, OptionError, "seed"),
        (NOISE, BITS, {"cav": "signel"}, UnknownNameError, "Did you mean 'signal'"),
    ],
)
def test_what_cannot_be_examined_is_refused(X, bits, options, error, words) -> None:
    with pytest.raises(error, match=words):
        diagnose_cav(X, bits, **options)


N, CHANNELS = 60, 30


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
    assert found.verdict.startswith(f"{N} pairs of the same image without and with the artifact are few")
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


def test_samples_that_are_no_pairs_are_refused() -> None:
    samples, bits = samples_of_pairs(*pairs(size=3.0, spread=1.0, noise=1.0))
    with pytest.raises(DataError, match="all clean samples and then"):
        diagnose_cav(samples, ~bits, cav="pair", paired=True)
    with pytest.raises(DataError, match="one class label for each"):
        diagnose_cav(samples, bits, cav="pair", paired=True, in_class=bits[:3])


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


@pytest.mark.parametrize("cav", ["signal", "pair", "ridge"])
def test_bits_that_show_are_seen(cav: str) -> None:
    X, bits, _ = gaussian(30, 40, 6, size=2.0)
    seen = quick_check(X, bits, cav=cav, seed=0)
    assert seen.is_visible
    assert seen.auc > 0.8
    assert quick_check(X, bits, cav=cav, seed=0) == seen


@pytest.fixture
def proposed() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Activations without an artifact, bits that were read off from them, and marks of a person, who flips a coin."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6))
    bits = X[:, 0] > 0
    is_marked = np.arange(200) < 60
    bits[is_marked] = rng.random(60) < 0.5
    return X, bits, is_marked


def test_proposed_bits_do_not_count_as_truth(proposed: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    X, bits, is_marked = proposed
    blind = diagnose_cav(X, bits)
    assert blind.finding("held_out_auc").value > 0.75  # agreement with itself
    basis = choose_basis(bits, is_marked)
    found = basis.annotate(diagnose_cav(X[basis.rows], bits[basis.rows]))
    assert np.array_equal(basis.rows, np.arange(60))
    assert found.level == "poor"
    assert found.finding("held_out_auc").value < 0.7
    assert "Only the 60 marked images were examined; the other 140" in found.verdict


def test_too_few_marks_are_said_first_and_never_good(proposed: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    X, _, _ = proposed
    bits, is_marked = X[:, 0] > 0, np.arange(200) < 3
    basis = choose_basis(bits, is_marked)
    found = diagnose_cav(X, bits)
    annotated = basis.annotate(found)
    assert len(basis.rows) == 200
    assert found.level != "poor"
    assert annotated.level == "unknown"
    assert annotated.verdict.startswith(
        "This measures agreement with the labelling page's own proposal, not the truth: 197 of"
    )
    assert annotated.verdict.endswith(found.verdict)


@pytest.mark.parametrize("name", THRESHOLDS)
def test_levels_are_in_order(name: str) -> None:
    threshold = THRESHOLDS[name]
    step = -1e-6 if threshold.more_is_better else 1e-6
    assert level_of(name, threshold.good) == "good"
    assert level_of(name, threshold.good + step) == "fair"
    assert level_of(name, threshold.fair) == "fair"
    assert level_of(name, threshold.fair + step) == "poor"


def test_the_three_angles_say_the_same() -> None:
    error, halves, bootstrap = (
        np.radians([THRESHOLDS[name].good, THRESHOLDS[name].fair])
        for name in ("expected_error", "split_half_angle", "bootstrap_angle")
    )
    assert np.degrees(error[0]) == pytest.approx(TARGET)
    np.testing.assert_allclose(np.cos(halves), 1 / (1 + 2 * np.tan(error) ** 2), atol=2e-3)
    np.testing.assert_allclose(np.tan(bootstrap), np.sin(error), atol=2e-3)


@pytest.mark.parametrize(("error", "is_at_limit"), [(9.9, False), (10.3, True), (10.6, False)])
def test_an_error_at_the_limit_asks_for_no_more_images(error: float, is_at_limit: bool) -> None:
    measured = of_error(error, n_artifact=105, n_clean=45)
    assert measured.expected_error == pytest.approx(error)
    _, words = judge(measured, describe(measured))
    assert ("105 artifact images of the biased class are just about enough" in words) == is_at_limit
    assert ("would bring" in words) == (error > 10.5)


@pytest.mark.parametrize(
    ("error", "n_artifact", "n_clean", "unmarked", "start", "asked"),
    [
        (16.0, 81, 15, 300, "15 images without the artifact of", "Label about 42 more without it: that would bring"),
        (16.0, 15, 81, 300, "15 artifact images of", "Label about 42 more with it: that would bring"),
        (
            16.0,
            81,
            15,
            40,
            "15 images without",
            "Label more without it, but the 40 images that are not labelled yet may",
        ),
        (16.0, 81, 15, None, "15 images without", "About 57 would bring its error to 10 degrees."),
        (40.0, 81, 15, 2000, "15 images without", "Label about 560 more without it and 490 with it: that would bring"),
    ],
)
def test_the_kind_that_is_short_is_asked_for_and_never_more_than_there_are(
    error: float, n_artifact: int, n_clean: int, unmarked: int | None, start: str, asked: str
) -> None:
    measured = of_error(error, n_artifact=n_artifact, n_clean=n_clean)
    _, words = judge(measured, describe(measured), unmarked=unmarked)
    assert words.startswith(start)
    assert asked in words


def test_one_image_that_looks_wrongly_marked_is_named_and_not_called_good() -> None:
    suspect_labels = (SuspectLabel("img_18.png", True, -2.0, 99.0),)
    found = describe(replace(of_error(5.0, n_artifact=105, n_clean=45), suspect_labels=suspect_labels))
    (finding,) = (each for each in found if each.name == "suspect_labels")
    assert finding.level == "fair"
    assert finding.sentence == (
        "1 image looks wrongly labelled (1 listed with the artifact, 0 without): img_18.png. Look at it."
    )


def of_error(error: float, *, n_artifact: int, n_clean: int) -> Measured:
    """Return what was measured of a visible artifact whose direction is off by so many degrees."""
    between = np.cos(np.radians(error)) ** 2 / (2 - np.cos(np.radians(error)) ** 2)  # of halves
    held_out = HeldOut(np.zeros(2), 0.95, 0.01, 3.0)
    return Measured(
        cav="signal",
        n_artifact=n_artifact,
        n_clean=n_clean,
        half_cosines=np.full(8, between),
        bootstrap_angles=np.full(8, error),
        held_out=held_out,
        null=Null(np.full(99, 0.5), np.zeros(99)),
        agreement=Agreement(("signal",), ((1.0,),)),
        overlap=np.zeros(8),
        suspect_labels=(),
    )
