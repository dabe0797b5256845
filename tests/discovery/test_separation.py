"""How far is far: a literal Mahalanobis distance, and clouds without groups."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hansfree.discovery.clustering import (
    Null,
    choose_groups,
    group_points,
    reduce_features,
    separation_of,
    simulate_null,
)


def _groups(points: np.ndarray) -> list[np.ndarray]:
    return choose_groups(points, group_points(points, seed=0), np.zeros(len(points)))


def test_separation_is_the_distance_within_spreads() -> None:
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


def test_p_values_are_those_of_a_normal_logarithm() -> None:
    null = Null(mean=1.0, spread=0.1)
    assert null.p_value(math.e) == pytest.approx(0.5)
    assert null.p_value(null.limit) == pytest.approx(0.05, abs=1e-3)
    assert null.p_value(2 * null.limit) < 1e-6
    assert null.p_value(0.0) == pytest.approx(1.0)


def test_clouds_without_groups_rarely_seem_to_have_any() -> None:
    clouds = [reduce_features(np.random.default_rng(world).normal(size=(60, 30))) for world in range(20)]
    null = simulate_null(clouds[0], seed=0)  # that of the others is the same
    largest = [max(separation_of(cloud, inside) for inside in _groups(cloud)) for cloud in clouds]
    assert sum(null.p_value(separation) <= 0.05 for separation in largest) <= 4
    assert sum(null.p_value(separation) > 0.5 for separation in largest) >= 4
    assert max(largest) < 1.6 * null.limit


def test_a_group_apart_is_far_beyond_chance() -> None:
    features = np.random.default_rng(0).normal(size=(80, 10))
    features[:20, :4] += 5
    points = reduce_features(features)
    null = simulate_null(points, seed=0)
    best, *others = _groups(points)
    separation = separation_of(points, best)
    assert (best == (np.arange(80) < 20)).all()
    assert all(inside.sum() < 40 for inside in others)  # the rest of the class is no group
    assert separation > 2 * null.limit
    assert null.p_value(separation) < 1e-6


def test_chosen_groups_do_not_overlap_and_the_furthest_is_first() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(60, 4))
    points[:20, 0] += 8
    here = np.arange(60)
    groups = [here < 15, here < 20, (here >= 18) & (here < 40), here >= 40]
    chosen = choose_groups(points, groups, np.zeros(60))
    assert (chosen[0] == groups[1]).all()
    assert sum(inside.astype(int) for inside in chosen).max() == 1


@pytest.mark.parametrize(
    ("apart", "sure", "expected"),
    [
        (36, 0, slice(36, 60)),  # the smaller side of the border
        (36, 5, slice(36)),  # the model is surer of the other, and it may be the artifact
        (45, 5, slice(45, 60)),  # more than two thirds are the class
    ],
)
def test_one_side_of_a_border_is_the_group(apart: int, sure: float, expected: slice) -> None:
    points = np.random.default_rng(0).normal(size=(60, 4))
    points[:apart, 0] += 8
    inside = np.arange(60) < apart
    (chosen,) = choose_groups(points, [inside, ~inside], np.where(inside, sure, 0.0))
    assert np.array_equal(np.flatnonzero(chosen), np.arange(60)[expected])
