"""The doctor on samples whose true direction is known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansfree._internal.progress import OneBar, silent
from hansfree.cavs import CAV, SignalCAV
from hansfree.cavs.diagnostics import Diagnosis, examine_cav
from hansfree.cavs.diagnostics.resampling import Repeats
from hansfree.errors import DataError, OptionError, UnknownNameError
from tests.cavs.diagnostics.samples import gaussian, size_for


def examined(angle: float, *, n_artifact: int = 40, n_clean: int = 80, channels: int = 64, **options) -> Diagnosis:
    X, bits, _ = gaussian(n_artifact, n_clean, channels, size=size_for(angle, n_artifact, n_clean, channels))
    return examine_cav(X, bits, **options)


@pytest.fixture(scope="module")
def clear() -> Diagnosis:
    return examined(6.0)


@pytest.mark.parametrize("angle", [6.0, 15.0, 35.0])
def test_the_expected_error_is_the_true_one(angle: float) -> None:
    n_artifact, n_clean, channels = 40, 80, 200
    X, bits, truth = gaussian(n_artifact, n_clean, channels, size=size_for(angle, n_artifact, n_clean, channels))
    true_angle = np.degrees(np.arccos(SignalCAV().fit(X, bits).direction_ @ truth))
    diagnosis = examine_cav(X, bits)
    assert diagnosis.finding("expected_error").value == pytest.approx(true_angle, rel=0.12)
    assert diagnosis.level == {6.0: "good", 15.0: "fair", 35.0: "poor"}[angle]


def test_angles_between_halves_and_of_the_bootstrap_follow_theory() -> None:
    diagnosis = examined(15.0, n_artifact=60, n_clean=60, channels=300)
    tan = np.tan(np.radians(15.0))
    between = np.degrees(np.arccos(1 / (1 + 2 * tan**2)))
    assert diagnosis.finding("split_half_angle").value == pytest.approx(between, rel=0.06)
    redrawn = np.degrees(np.arctan(np.sin(np.radians(15.0))))
    assert diagnosis.finding("bootstrap_angle").value == pytest.approx(redrawn, rel=0.06)


def test_another_difference_of_means_is_examined_as_the_signal_cav_is(
    clear: Diagnosis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CAV, "_members", CAV.members())

    class OwnCAV(CAV, name="own"):
        is_mean_difference = True

        def _direction(self, X, has_artifact):
            return X[has_artifact].mean(axis=0) - X[~has_artifact].mean(axis=0)

    found = examined(6.0, cav="own").finding("expected_error")
    assert found.value == pytest.approx(clear.finding("expected_error").value)
    assert "mean shift would stay" in found.sentence


def test_the_curve_falls_with_more_images_and_ends_at_the_whole(clear: Diagnosis) -> None:
    assert [point.n for point in clear.curve] == [5, 10, 20, 40]
    angles = [point.angle for point in clear.curve]
    assert angles == sorted(angles, reverse=True)
    assert angles[-1] == clear.finding("expected_error").value
    # tan² falls as one over n: four times the images, half the tangent
    assert np.tan(np.radians(angles[1])) == pytest.approx(2 * np.tan(np.radians(angles[3])), rel=0.15)
    assert all(0.9 < point.auc <= 1 for point in clear.curve)


def test_the_need_is_met_by_that_many_images() -> None:
    few = examined(20.0, n_artifact=40, n_clean=40, channels=200)
    need = few.finding("images_needed").value
    assert need is not None
    n = round(need)
    X, bits, _ = gaussian(n, n, 200, size=size_for(20.0, 40, 40, 200), seed=1)
    assert examine_cav(X, bits).finding("expected_error").value == pytest.approx(10.0, abs=1.0)


def test_too_few_images_are_told_in_plain_words() -> None:
    diagnosis = examined(40.0, n_artifact=20, n_clean=100)
    moves = diagnosis.finding("split_half_angle").value
    assert diagnosis.level == "poor"
    assert diagnosis.verdict.startswith(
        f"20 artifact images are too few: the direction moves by {moves:.0f} degrees between halves."
    )
    assert "would bring its error to 10 degrees" in diagnosis.verdict


def test_bits_without_meaning_are_refused() -> None:
    X, bits, _ = gaussian(40, 80, 64, size=0.0, seed=3)
    diagnosis = examine_cav(X, bits)
    assert diagnosis.level == "poor"
    assert diagnosis.verdict.startswith("Do not use this direction")
    assert diagnosis.finding("permutation_p").value > 0.05
    assert diagnosis.finding("images_needed").value is None
    assert diagnosis.finding("wrong_marks").level == "unknown"
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
    diagnosis = examine_cav(X, bits, ids=[Path(f"image-{row}") for row in range(len(X))])
    assert {mark.id for mark in diagnosis.wrong_marks} == {f"image-{row}" for row in wrong}
    assert [mark.has_artifact for mark in diagnosis.wrong_marks].count(True) == 3
    odds = [mark.odds for mark in diagnosis.wrong_marks]
    assert odds == sorted(odds, reverse=True)
    assert all((mark.score < 0) == mark.has_artifact for mark in diagnosis.wrong_marks)
    assert "5 images look wrongly marked (3 listed with the artifact, 2 without)" in diagnosis.verdict


def test_right_bits_make_no_wrong_marks(clear: Diagnosis) -> None:
    assert clear.wrong_marks == ()
    assert clear.finding("wrong_marks").level == "good"


def test_a_direction_that_is_the_class_is_warned_of() -> None:
    X, bits, truth = gaussian(60, 60, 30, size=10.0)
    rng = np.random.default_rng(5)
    noise = 3.0 + rng.normal(size=(60, 30))
    side = np.linalg.svd(truth[None])[2][1]  # at right angles to the artifact
    same, apart = (examine_cav(X, bits, others=noise - 10 * way) for way in (truth, side))
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
    found = examine_cav(X, bits, others=others).finding("class_overlap")
    assert abs(found.value) < 0.1
    assert found.level == "unknown"


def test_all_solvers_are_compared(clear: Diagnosis) -> None:
    cosines = np.array(clear.agreement.cosines)
    assert clear.agreement.names == tuple(CAV.from_marks())
    np.testing.assert_allclose(cosines, cosines.T)
    np.testing.assert_allclose(np.diagonal(cosines), 1.0)


def test_low_agreement_is_called_normal() -> None:
    X, bits, _ = gaussian(100, 100, 10, size=3.0)
    distractor = np.ones(10)
    X = X + np.outer(np.random.default_rng(1).normal(size=200) * 20, distractor)
    diagnosis = examine_cav(X, bits)
    found = diagnosis.finding("solver_agreement")
    assert diagnosis.agreement.between("signal", "ridge") < 0.7
    assert found.level == "unknown"
    assert "low agreement between signal and the filters is normal" in found.sentence


@pytest.mark.parametrize("cav", [name for name in CAV.members() if name != "signal"])
def test_every_cav_can_be_examined(cav: str) -> None:
    X, bits, _ = gaussian(20, 30, 8, size=6.0)
    diagnosis = examine_cav(X, bits, cav=cav)
    assert diagnosis.cav == cav
    assert diagnosis.finding("held_out_auc").value > 0.95
    assert diagnosis.finding("permutation_p").level == "good"
    is_pattern = cav == "pair"  # of single samples it is the difference of the means, as signal
    assert ("mean shift would stay" in diagnosis.finding("expected_error").sentence) == is_pattern


def test_four_of_each_are_enough_to_be_told_that_they_are_few() -> None:
    X, bits, _ = gaussian(4, 4, 50, size=2.0)
    diagnosis = examine_cav(X, bits)
    assert [point.n for point in diagnosis.curve] == [2, 4]
    assert diagnosis.level == "poor"


@pytest.fixture(scope="module")
def one() -> Diagnosis:
    X, bits, _ = gaussian(10, 14, 6, size=4.0)
    return examine_cav(X, bits)


@settings(max_examples=5, deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(-50, 50), st.integers(0, 100))
def test_units_origin_and_axes_do_not_matter(one: Diagnosis, scale: float, offset: float, seed: int) -> None:
    X, bits, _ = gaussian(10, 14, 6, size=4.0)
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(6, 6)))[0]
    other = examine_cav(scale * (X @ rotation) + offset, bits)
    for name in ("expected_error", "split_half_angle", "bootstrap_angle", "held_out_auc", "permutation_p"):
        assert other.finding(name).value == pytest.approx(one.finding(name).value, rel=1e-4), name
        assert other.finding(name).level == one.finding(name).level
    np.testing.assert_allclose(other.scores, one.scores, rtol=1e-4, atol=1e-6)


def test_the_same_seed_gives_the_same_diagnosis_and_leaves_the_samples_alone() -> None:
    X, bits, _ = gaussian(10, 20, 6, size=3.0)
    before = X.copy()
    first = examine_cav(X, bits, seed=1)
    assert examine_cav(X, bits, seed=1) == first
    assert examine_cav(X, bits, seed=2).curve != first.curve
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize(("cav", "n_artifact"), [("signal", 12), ("signal", 90), ("ridge", 12)])
def test_progress_is_one_bar_that_is_just_full(cav: str, n_artifact: int, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []

    def watch(steps, *, total, label):
        told.extend((label, total))
        for step in steps:
            told.append(step)
            yield step
        told.append("asked for more")

    monkeypatch.setattr(OneBar, "finish", lambda bar: told.append("finished"))
    X, bits, _ = gaussian(n_artifact, 20, 6, size=3.0)
    examine_cav(X, bits, cav=cav, progress=watch)
    label, total, *steps, last = told
    assert (label, steps, last) == ("CAV doctor", list(range(total)), "finished")


def test_a_finished_bar_was_asked_for_one_step_more() -> None:
    told: list[int] = []

    def watch(steps, *, total, label):
        yield from steps
        told.append(total)

    bar = OneBar(watch, total=3, label="all")
    assert [*bar("ab", total=2, label="first"), *bar("c", total=1, label="second")] == ["a", "b", "c"]
    assert told == []
    bar.finish()
    assert told == [3]


def test_json_round_trip(clear: Diagnosis) -> None:
    text = clear.to_json()
    assert Diagnosis.from_json(text) == clear
    assert json.loads(text)["verdict"] == clear.verdict
    X, bits, _ = gaussian(60, 60, 10, size=8.0)
    bits[np.flatnonzero(bits)[0]] = False
    with_wrong_marks = examine_cav(X, bits, ids=np.arange(120), others=X[:10])
    assert with_wrong_marks.wrong_marks
    assert Diagnosis.from_json(with_wrong_marks.to_json()) == with_wrong_marks
    older = with_wrong_marks.to_json().replace('"wrong_marks": [', '"suspects": [')
    assert older != with_wrong_marks.to_json()
    assert Diagnosis.from_json(older) == with_wrong_marks


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "other"}', '{"format": "hansfree.diagnosis.1"}'])
def test_what_is_no_diagnosis_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="no diagnosis"):
        Diagnosis.from_json(text)


def test_an_unknown_finding_is_an_error_that_lists_them(clear: Diagnosis) -> None:
    with pytest.raises(DataError, match="expected_error"):
        clear.finding("angle")


def test_a_diagnosis_is_frozen(clear: Diagnosis) -> None:
    assert replace(clear, verdict="other") != clear
    with pytest.raises(AttributeError):
        clear.verdict = "other"  # type: ignore[misc]


BITS = np.arange(12) % 2 == 0
NOISE = np.random.default_rng(0).normal(size=(12, 3))


@pytest.mark.parametrize(
    ("X", "bits", "options", "error", "words"),
    [
        (NOISE, np.arange(12) < 3, {}, DataError, "at least 4 images with the artifact.*there are 3"),
        (NOISE, np.arange(12) >= 3, {}, DataError, "at least 4 images without the artifact"),
        (NOISE, BITS[:5], {}, DataError, "one artifact bit per sample"),
        (NOISE, BITS * 2, {}, DataError, "0 or 1"),
        (NOISE, ["no", "yes"] * 6, {}, DataError, "0 or 1"),
        (np.ones((12, 3)), BITS, {}, DataError, "constant"),
        (np.where(np.arange(12)[:, None] == 4, np.nan, NOISE), BITS, {}, DataError, "1 of 12 samples hold NaN"),
        (NOISE[:, 0], BITS, {}, DataError, "shape is"),
        ([["a"] * 3] * 12, BITS, {}, DataError, "needs numbers"),
        (NOISE, BITS, {"others": NOISE[:, :2]}, DataError, "other classes with 3 channels"),
        (NOISE, BITS, {"others": NOISE * np.inf}, DataError, "finite"),
        (NOISE, BITS, {"ids": [1, 2]}, DataError, "one id"),
        (NOISE, BITS, {"seed": -1}, OptionError, "seed"),
        (NOISE, BITS, {"cav": "signel"}, UnknownNameError, "Did you mean 'signal'"),
    ],
)
def test_what_cannot_be_examined_is_refused(X, bits, options, error, words) -> None:
    with pytest.raises(error, match=words):
        examine_cav(X, bits, **options)
