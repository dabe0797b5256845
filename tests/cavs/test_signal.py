from __future__ import annotations

from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

from hansfree.cavs import SVMCAV, RidgeCAV, SignalCAV
from hansfree.errors import DataError
from tests.cavs.samples import activations

FITTED = ["directions_", "scale_", "clean_score_", "artifact_score_", "intercept_", "class_mean_", "class_count_"]
cases = {
    "seed": st.integers(0, 10_000),
    "n": st.integers(4, 40),
    "channels": st.integers(1, 12),
    "offset": st.floats(-50, 50),
}


def paper_signal(X, bits):
    """h = sum over (x, t) of (a(x) - a-bar)(t - t-bar), term by term."""
    mean_activation = sum(X) / len(X)
    mean_bit = sum(float(t) for t in bits) / len(bits)
    h = np.zeros(X.shape[1])
    for a, t in zip(X, bits):
        h += (a - mean_activation) * (float(t) - mean_bit)
    return h


def assert_same(cav, other):
    for name in FITTED:
        np.testing.assert_allclose(getattr(cav, name), getattr(other, name), rtol=1e-9, atol=1e-9, err_msg=name)


@settings(max_examples=50, deadline=None)
@given(**cases)
def test_direction_is_the_paper_s_equation_and_the_difference_of_means(seed, n, channels, offset):
    X, bits = activations(n, channels, seed=seed, offset=offset)
    cav = SignalCAV().fit(X, bits)
    h = paper_signal(X, bits)
    np.testing.assert_allclose(cav.direction_, h / np.linalg.norm(h), atol=1e-9)
    difference = X[bits].mean(0) - X[~bits].mean(0)
    np.testing.assert_allclose(cav.direction_, difference / np.linalg.norm(difference), atol=1e-9)
    np.testing.assert_allclose(cav.scale_, [np.linalg.norm(difference)])


@settings(max_examples=50, deadline=None)
@given(**cases, factor=st.floats(1e-3, 1e3))
def test_scaled_features_scale_the_scores_and_keep_the_direction(seed, n, channels, offset, factor):
    X, bits = activations(n, channels, seed=seed, offset=offset)
    cav, scaled = SignalCAV().fit(X, bits), SignalCAV().fit(factor * X, bits)
    np.testing.assert_allclose(scaled.directions_, cav.directions_, atol=1e-9)
    np.testing.assert_allclose(scaled.scale_, factor * cav.scale_)
    np.testing.assert_allclose(scaled.intercept_, factor * cav.intercept_, rtol=1e-7, atol=1e-7 * factor)


@settings(max_examples=50, deadline=None)
@given(**cases, cuts=st.lists(st.integers(1, 39), max_size=4))
def test_batches_and_merged_parts_give_what_one_fit_gives(seed, n, channels, offset, cuts):
    X, bits = activations(n, channels, seed=seed, offset=offset)
    whole = SignalCAV().fit(X, bits)
    edges = [0, *sorted({cut for cut in cuts if cut < n}), n]
    batches = [(X[i:j], bits[i:j]) for i, j in pairwise(edges)]
    streamed = SignalCAV()
    for batch in batches:
        streamed.partial_fit(*batch)
    assert_same(streamed, whole)
    assert_same(reduce(SignalCAV.merge, [SignalCAV().partial_fit(*batch) for batch in batches]), whole)


def test_border_lies_midway_between_the_class_means():
    X, bits = activations()
    cav = SignalCAV().fit(X, bits)
    middle = (X[bits].mean(0) + X[~bits].mean(0)) / 2
    np.testing.assert_allclose(cav.decision_function(middle[None]), [0.0], atol=1e-9)


def test_merge_leaves_both_as_they_are():
    X, bits = activations()
    left, right = SignalCAV().fit(X[:30], bits[:30]), SignalCAV().fit(X[30:], bits[30:])
    before = left.directions_.copy(), right.directions_.copy()
    merged = left.merge(right)
    assert merged is not left
    np.testing.assert_array_equal(left.directions_, before[0])
    np.testing.assert_array_equal(right.directions_, before[1])
    assert merged.class_count_.tolist() == [40, 20]
    assert left.class_count_.sum() == 30


def test_direction_waits_for_the_second_class():
    X, bits = activations()
    cav = SignalCAV().partial_fit(X[~bits], bits[~bits])
    with pytest.raises(NotFittedError, match="has no direction yet"):
        cav.predict(X)
    assert_same(cav.partial_fit(X[bits], bits[bits]), SignalCAV().fit(X, bits))


def test_constant_features_never_become_a_direction_by_rounding():
    X, bits = np.full((1000, 3), 0.1), np.arange(1000) % 3 == 0
    cav = SignalCAV()
    for start in range(0, 1000, 77):
        cav.partial_fit(X[start : start + 77], bits[start : start + 77])
    with pytest.raises(NotFittedError, match="has no direction yet"):
        cav.score_along(X)


def test_fit_forgets_what_was_streamed_before():
    X, bits = activations()
    cav = SignalCAV().partial_fit(X + 7.0, ~bits).fit(X, bits)
    assert_same(cav, SignalCAV().fit(X, bits))


def test_memory_does_not_grow_with_the_samples():
    def size(n):
        X, bits = activations(n)
        return sum(np.asarray(value).nbytes for value in vars(SignalCAV().fit(X, bits)).values())

    assert size(6000) == size(60)


def test_streams_that_do_not_belong_together_are_errors():
    X, bits = activations()
    cav = SignalCAV().fit(X, bits)
    with pytest.raises(DataError, match="one has 6 features and the other 5"):
        cav.merge(SignalCAV().fit(X[:, :5], bits))
    with pytest.raises(NotFittedError, match="has seen no samples"):
        cav.merge(SignalCAV())
    with pytest.raises(DataError, match="3 labels were given"):
        cav.merge(SignalCAV().fit(X, np.where(bits, 5, 0)))
    with pytest.raises(DataError, match="not one of the classes"):
        SignalCAV().partial_fit(X, bits, classes=[3, 4])
    with pytest.raises(DataError, match="features"):
        cav.partial_fit(X[:, :5], bits)


def test_signal_ignores_a_distractor_that_bends_the_classifiers():
    """The second channel holds only noise, which the first shares: subtracting it separates the classes."""
    rng = np.random.default_rng(0)
    bits = np.arange(1000) % 2 == 0
    distractor = 1.5 * rng.normal(size=1000)
    X = np.stack([bits + distractor, distractor], axis=1) + 0.1 * rng.normal(size=(1000, 2))
    truth = np.array([1.0, 0.0])
    assert SignalCAV().fit(X, bits).direction_ @ truth > 0.95
    assert SVMCAV().fit(X, bits).direction_ @ truth < 0.8
    assert RidgeCAV().fit(X, bits).direction_ @ truth < 0.8
