"""Groups of neighbours are found, whatever the scale of the channels."""

from __future__ import annotations

import numpy as np
import pytest

from hansfree.discovery.clustering import MIN_CLUSTER, group_points, reduce_features


def test_features_are_reduced_to_uncorrelated_axes_the_widest_first() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 40)) * np.geomspace(1e-3, 1e3, 40)
    points = reduce_features(features)
    covariance = points.T @ points / len(points)
    assert points.shape == (60, 20)
    assert np.allclose(points.mean(axis=0), 0)
    assert np.allclose(covariance, np.diag(np.diag(covariance)))
    assert (np.diff(np.diag(covariance)) <= 1e-9).all()
    assert np.allclose(points, reduce_features(features * 7 + 3))


def test_channels_that_never_change_are_left_out() -> None:
    features = np.random.default_rng(0).normal(size=(40, 3))
    with_still = np.column_stack([features, np.full(40, 5.0)])
    assert np.allclose(reduce_features(with_still), reduce_features(features))
    assert reduce_features(np.ones((40, 3))).tolist() == [[0.0]] * 40


def test_one_far_image_does_not_stretch_an_axis() -> None:
    features = np.random.default_rng(0).normal(size=(100, 4))
    features[0, 0] = 1e6
    assert np.abs(reduce_features(features)).max() < 6


@pytest.mark.parametrize("size", [8, 40])
def test_a_group_apart_is_among_the_groups(size: int) -> None:
    points = np.random.default_rng(0).normal(size=(80, 5))
    points[:size, 0] += 12
    wanted = np.arange(80) < size
    groups = group_points(points, seed=0)
    assert any((group == wanted).all() for group in groups)
    assert all(MIN_CLUSTER <= group.sum() <= 80 - MIN_CLUSTER for group in groups)
    assert len({group.tobytes() for group in groups}) == len(groups)


def test_the_seed_decides() -> None:
    points = np.random.default_rng(0).normal(size=(60, 5))
    one, other = (group_points(points, seed=3) for _ in range(2))
    assert [group.tolist() for group in one] == [group.tolist() for group in other]
