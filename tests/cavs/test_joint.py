"""Several CAVs as one: the penalty is the sum of theirs, and what is protected is out of it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from hansfree.cavs import CAV, JointCAV, PairCAV, SignalCAV, class_direction, join_cavs
from hansfree.errors import DataError

CHANNELS = 7


def signal(seed: int, shift: NDArray[np.float64] | None = None) -> SignalCAV:
    rng = np.random.default_rng(seed)
    way = rng.normal(size=CHANNELS) * 3 if shift is None else shift
    has = np.arange(80) % 2 == 0
    return SignalCAV().fit(rng.normal(size=(80, CHANNELS)) + np.outer(has, way), has)


def pairs(seed: int) -> PairCAV:
    rng = np.random.default_rng(seed)
    clean = rng.normal(size=(60, CHANNELS))
    change = rng.normal(size=(60, 2)) @ rng.normal(size=(2, CHANNELS)) + rng.normal(size=CHANNELS)
    return PairCAV(count=3).fit_pairs(clean, clean + change)


def squares(gradient: NDArray[np.float64], cavs: list[CAV]) -> float:
    """Return the penalty of RR-ClArC for one logit's gradient, direction by direction."""
    total = 0.0
    for cav in cavs:
        for direction, size in zip(cav.directions_, cav.size_):
            total += sum(g * size * h for g, h in zip(gradient, direction)) ** 2
    return total


@pytest.mark.parametrize("seed", range(3))
def test_the_penalty_is_the_sum_of_the_penalties(seed: int) -> None:
    cavs: list[CAV] = [signal(seed), pairs(seed + 10), signal(seed + 20)]
    joint = join_cavs(cavs)
    assert joint.directions_.shape == (5, CHANNELS)
    np.testing.assert_allclose(joint.directions_ @ joint.directions_.T, np.eye(5), atol=1e-12)
    for gradient in np.random.default_rng(seed).normal(size=(4, CHANNELS)):
        assert squares(gradient, [joint]) == pytest.approx(squares(gradient, cavs), rel=1e-10)
    turned = join_cavs(cavs[::-1])
    np.testing.assert_allclose(turned.size_, joint.size_)
    np.testing.assert_allclose(np.abs(turned.directions_ @ joint.directions_.T), np.eye(5), atol=1e-6)


@pytest.mark.parametrize("cav", [signal(0), pairs(1)])
def test_one_alone_stays_what_it_is(cav: CAV) -> None:
    joint, X = join_cavs([cav]), np.random.default_rng(2).normal(size=(9, CHANNELS))
    order = np.argsort(-cav.size_)
    np.testing.assert_allclose(np.abs(joint.directions_ @ cav.directions_[order].T), np.eye(len(order)), atol=1e-6)
    np.testing.assert_allclose(joint.size_, cav.size_[order])
    np.testing.assert_allclose(joint.scale_, cav.scale_[order], atol=1e-6)
    np.testing.assert_allclose(joint.decision_function(X), cav.decision_function(X), atol=1e-6)
    assert joint.angles_ == pytest.approx([90])


def test_scores_lead_from_no_artifact_to_all_of_them() -> None:
    cavs = [signal(0), signal(1)]
    joint = join_cavs(cavs)
    clean = (cavs[0].class_mean_[0] + cavs[1].class_mean_[0]) / 2
    shift = sum(cav.scale_[0] * cav.directions_[0] for cav in cavs)  # a signal-CAV's direction is that of the means
    np.testing.assert_allclose(joint.clean_score_, joint.directions_ @ clean)
    np.testing.assert_allclose(joint.scale_ @ joint.directions_, shift)
    np.testing.assert_allclose(joint.artifact_score_ - joint.clean_score_, joint.scale_, atol=1e-12)
    assert np.all(joint.scale_ >= 0)
    assert joint.predict(np.stack([clean, clean + shift])).tolist() == [False, True]


def test_what_is_protected_is_taken_out_first() -> None:
    cavs: list[CAV] = [signal(0), pairs(1)]
    benign, axis = signal(2), np.eye(CHANNELS)[3] * 40
    joint = join_cavs(cavs, protect=[benign, axis])
    first = benign.directions_[0]
    second = axis - (axis @ first) * first
    second /= np.linalg.norm(second)
    np.testing.assert_allclose(joint.directions_ @ np.stack([first, second]).T, 0, atol=1e-12)
    for gradient in np.random.default_rng(3).normal(size=(4, CHANNELS)):
        apart = gradient - (gradient @ first) * first - (gradient @ second) * second
        assert squares(gradient, [joint]) == pytest.approx(squares(apart, cavs), rel=1e-10)
    rows = join_cavs(cavs, protect=[np.stack([first, 2 * second, first + second])])  # the same plane, once too many
    np.testing.assert_allclose(rows.size_, joint.size_)


def test_the_label_lists_the_names() -> None:
    ruler, ink, hair = signal(0), pairs(1), signal(2)
    joint = join_cavs({"ruler": ruler, "ink": ink}, protect={"hair": hair, "skin": np.eye(CHANNELS)[0]})
    plain = join_cavs([ruler, ink], protect=[hair, np.eye(CHANNELS)[0]])
    np.testing.assert_array_equal(joint.directions_, plain.directions_)
    assert joint.label == "signal and pair: ruler + ink; kept: hair + skin"
    assert join_cavs({"ruler": ruler}).label == "signal: ruler"
    assert (plain.label, ruler.label) == ("joint", "signal")
    with pytest.raises(DataError, match=r"^ink \(signal\) lies at 0\.0 degrees to what is protected"):
        join_cavs({"ruler": ruler, "ink": hair}, protect={"hair": hair})


SMALL = SignalCAV().fit([[0.0, 0.0], [1.0, 2.0]], [0, 1])


@pytest.mark.parametrize(
    ("cavs", "protect", "error", "sentence"),
    [
        ([], [], DataError, "no CAV to join"),
        ([signal(0), SMALL], [], DataError, "one has 7 channels and another 2"),
        ([SignalCAV()], [], NotFittedError, "no direction yet"),
        ([signal(0)], [SMALL], DataError, r"shape \(1, 2\), but the CAVs have 7 channels"),
        ([signal(0)], [np.zeros(CHANNELS)], DataError, "no length"),
        ([signal(0)], [np.eye(CHANNELS)], DataError, r"at 0\.0 degrees"),
        (
            [signal(1), signal(0)], [signal(0).direction_ + 0.05 * np.eye(CHANNELS)[0]], DataError,
            r"CAV 2 of 2 \(signal\) lies at [12]\.\d degrees .*; at least 10 are needed",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_joined_is_refused(
    cavs: list[CAV], protect: list[CAV], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        join_cavs(cavs, protect=protect)


def test_it_is_not_registered_as_nothing_can_be_fitted() -> None:
    assert "joint" not in CAV.members()
    with pytest.raises(DataError, match="not fitted: fit one CAV for each artifact"):
        JointCAV().fit([[0.0, 0.0], [1.0, 2.0]], [0, 1])


def test_the_direction_of_a_class_is_that_of_its_clean_images() -> None:
    rng = np.random.default_rng(0)
    X, labels, has = rng.normal(size=(60, CHANNELS)), np.arange(60) % 3, np.arange(60) % 5 == 0
    X[has] += 100.0
    inside = [x for x, label, bit in zip(X, labels, has) if label == 1 and not bit]
    outside = [x for x, label, bit in zip(X, labels, has) if label != 1 and not bit]
    difference = sum(inside) / len(inside) - sum(outside) / len(outside)
    found = class_direction(X, labels, 1, has_artifact=has)
    np.testing.assert_allclose(found, difference / np.sqrt(np.sum(difference**2)))
    with pytest.raises(DataError, match=r"class 7 needs images .*; there are 0 and 48"):
        class_direction(X, labels, 7, has_artifact=has)
    with pytest.raises(DataError, match="has no direction"):
        class_direction(np.ones((60, 2)), labels, 1, has_artifact=has)
