"""Clusters of one class: reduced features, spectral clusters, their separation and distribution without clusters."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hansfree.discovery.clustering import (
    MIN_CLUSTER,
    Cluster,
    choose_groups,
    find_clusters,
    group_points,
    reduce_features,
    separation_of,
    simulate_null,
)
from hansfree.discovery.properties import Measurements

FIRST, COUNT, APART = 100, 80, 20  # the class's first row among all images, its images, and those apart
WITHIN = tuple(range(FIRST, FIRST + APART))
CONFIDENT = np.where(np.arange(COUNT) < APART, 5.0, np.linspace(0, 1, COUNT))


def chosen_groups(points: np.ndarray) -> list[np.ndarray]:
    return choose_groups(points, group_points(points, seed=0), np.zeros(len(points)))


def test_features_are_reduced_to_uncorrelated_axes() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 40)) * np.geomspace(1e-3, 1e3, 40)
    points = reduce_features(features)
    covariance = points.T @ points / len(points)
    assert points.shape == (60, 20)
    assert np.allclose(points.mean(axis=0), 0)
    assert np.allclose(covariance, np.diag(np.diag(covariance)))
    assert (np.diff(np.diag(covariance)) <= 1e-9).all()
    assert np.allclose(points, reduce_features(features * 7 + 3))
    with_constant = np.column_stack([features, np.full(60, 5.0)])
    assert np.allclose(reduce_features(with_constant), points)
    assert reduce_features(np.ones((40, 3))).tolist() == [[0.0]] * 40
    features[0, 0] = 1e6  # an outlier does not stretch an axis
    assert np.abs(reduce_features(features[:, :4])).max() < 6


@pytest.mark.parametrize("size", [8, 40])
def test_a_separate_group_is_among_the_groups(size: int) -> None:
    points = np.random.default_rng(0).normal(size=(80, 5))
    points[:size, 0] += 12
    groups = [group.tolist() for group in group_points(points, seed=0)]
    assert (np.arange(80) < size).tolist() in groups
    assert all(MIN_CLUSTER <= sum(group) <= 80 - MIN_CLUSTER for group in groups)
    assert len(set(map(tuple, groups))) == len(groups)
    assert [group.tolist() for group in group_points(points, seed=0)] == groups


def test_separation_is_the_mahalanobis_distance_within_groups() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(50, 3)) @ rng.normal(size=(3, 3))
    inside = np.arange(50) < 15
    within = sum(
        np.outer(point - group.mean(axis=0), point - group.mean(axis=0))
        for group in (points[inside], points[~inside])
        for point in group
    )
    step = points[inside].mean(axis=0) - points[~inside].mean(axis=0)
    expected = math.sqrt(step @ np.linalg.inv(within / 48) @ step)
    assert separation_of(points, inside) == pytest.approx(expected, rel=1e-4)
    assert separation_of(points, ~inside) == pytest.approx(expected, rel=1e-4)


def test_samples_without_clusters_are_rarely_significant() -> None:
    samples = [reduce_features(np.random.default_rng(seed).normal(size=(60, 30))) for seed in range(20)]
    null = simulate_null(samples[0], seed=0)  # that of the others is the same
    largest = [max(separation_of(sample, inside) for inside in chosen_groups(sample)) for sample in samples]
    assert sum(null.p_value(separation) <= 0.05 for separation in largest) <= 4
    assert sum(null.p_value(separation) > 0.5 for separation in largest) >= 4
    assert max(largest) < 1.6 * null.limit


def test_chosen_groups_do_not_overlap_and_the_most_separate_is_first() -> None:
    points = np.random.default_rng(0).normal(size=(60, 4))
    points[:20, 0] += 8
    here = np.arange(60)
    groups = [here < 15, here < 20, (here >= 18) & (here < 40), here >= 40]
    chosen = choose_groups(points, groups, np.zeros(60))
    assert (chosen[0] == groups[1]).all()
    assert sum(inside.astype(int) for inside in chosen).max() == 1


@pytest.mark.parametrize(
    ("apart", "confidence", "expected"),
    [
        (36, 0, slice(36, 60)),  # the smaller side of the border
        (36, 5, slice(36)),  # the model is more confident in the other, and it may be the artifact
        (45, 5, slice(45, 60)),  # more than two thirds are the class
    ],
)
def test_one_side_of_a_border_is_the_group(apart: int, confidence: float, expected: slice) -> None:
    points = np.random.default_rng(0).normal(size=(60, 4))
    points[:apart, 0] += 8
    inside = np.arange(60) < apart
    (chosen,) = choose_groups(points, [inside, ~inside], np.where(inside, confidence, 0.0))
    assert np.array_equal(np.flatnonzero(chosen), np.arange(60)[expected])


def clusters_of(
    *, shift: float, confidence: np.ndarray | None = None, brightness: float = 0.0, tests: int = 3
) -> list[Cluster]:
    rng = np.random.default_rng(0)
    features, values = rng.normal(size=(COUNT, 10)), rng.normal(size=(FIRST + COUNT, 2))
    features[:APART, :4] += shift
    values[FIRST : FIRST + APART, 0] += brightness
    found = find_all(features, values, np.zeros(COUNT) if confidence is None else confidence, first=FIRST, tests=tests)
    return sorted(found, key=lambda cluster: -cluster.anomaly)


def find_all(
    features: np.ndarray, values: np.ndarray, confidence: np.ndarray, *, first: int = 0, tests: int = 1
) -> list[Cluster]:
    return find_clusters(
        reduce_features(features),
        np.arange(first, len(values)),
        confidence,
        measured=Measurements(("brightness", "contrast"), values),
        label=2,
        class_name="MEL",
        tests=tests,
        seed=0,
    )


def test_a_cluster_with_all_signs_is_described() -> None:
    first, *others = clusters_of(shift=6, confidence=CONFIDENT, brightness=4)
    assert first.rows == WITHIN
    assert set(first.centre) <= set(first.rows)
    assert (first.label, first.level, first.distinct, first.confidence) == (2, "clear", "brightness", 1.0)
    start = f"{APART} of the {COUNT} images of class 'MEL' are clearly separated from the others: "
    assert first.sentence.startswith(start)
    assert "times the 95 % quantile by chance (corrected p < 0.001)" in first.sentence
    assert "The model is more confident in them: AUC 1.00. They are brighter: AUC" in first.sentence
    assert all(first.anomaly > 1.5 * other.anomaly for other in others)
    assert all(found.size <= (COUNT - APART) / 2 for found in others)  # the rest of the class is no cluster


def test_a_cluster_of_weak_significance_is_listed_as_weak() -> None:
    alone = clusters_of(shift=6, tests=1)[0]
    first = next(each for each in clusters_of(shift=6, tests=round(0.07 / alone.p)) if each.rows == alone.rows)
    assert 0.05 < first.p < 0.1
    assert first.level == "weak"
    assert "are perhaps weakly separated from the others (corrected p = 0.0" in first.sentence
    for found in clusters_of(shift=0):
        assert found.level != "clear"
        assert found.anomaly < 0.1
        if found.level == "none":
            assert found.anomaly == 0
            assert "no more separate than by chance" in found.sentence


@pytest.mark.parametrize(
    ("brightness", "expected"),
    [
        ((4, 4), [tuple(range(40))]),  # two bright clusters are one
        ((4, -6), [tuple(range(20)), tuple(range(20, 40))]),  # of a bright and a dark one, one stays
    ],
)
def test_a_property_has_one_cluster(brightness: tuple[float, float], expected: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    features, values = rng.normal(size=(120, 10)), rng.normal(size=(120, 2))
    for number, brighter in enumerate(brightness):
        inside = slice(20 * number, 20 * number + 20)
        features[inside, 3 * number : 3 * number + 3] += 6
        values[inside, 0] += brighter
    found = find_all(features, values, np.zeros(120))
    (only,) = (cluster for cluster in found if cluster.level != "none" and cluster.distinct == "brightness")
    assert only.rows in expected
