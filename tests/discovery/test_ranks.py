"""AUC by rank sums against counting all pairs, and p-values that hold for many comparisons at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hansfree.discovery.properties import MIN_COMPARED, Family, compare_groups, compare_together, rank_columns


def auc_by_pairs(values: np.ndarray, inside: np.ndarray) -> float:
    """Count, for every pair, who has more; equals and pairs with an unknown count half."""
    won = [
        0.5 if not np.isfinite([one, other]).all() or one == other else float(one > other)
        for one in values[inside]
        for other in values[~inside]
    ]
    return float(np.mean(won))


@settings(max_examples=40, deadline=None)
@given(arrays(np.float64, (16, 2), elements=st.sampled_from([0.0, 1.0, 2.5, 7.0, np.nan])))
def test_rank_sums_count_pairs(values: np.ndarray) -> None:
    number = np.repeat([0, 1, 0], [5, 7, 4])
    compared = compare_groups(rank_columns(values), number, 2)
    for column in range(2):
        known = values[np.isfinite(values[:, column]), column]
        expected = 0.5 if np.unique(known).size < 2 else auc_by_pairs(values[:, column], number == 1)
        assert compared.auc[1, column] == pytest.approx(expected)
        assert compared.auc[0, column] == pytest.approx(1 - compared.auc[1, column])


def test_the_size_is_in_standard_errors_of_a_random_deal() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 5, size=(40, 1)).astype(float)  # many ties
    number = (np.arange(40) < 12).astype(np.int64)
    ranks = rank_columns(values)
    deals = np.array([compare_groups(ranks, rng.permutation(number), 2).z[1, 0] for _ in range(3000)])
    assert deals.mean() == pytest.approx(0, abs=0.07)
    assert deals.std() == pytest.approx(1, abs=0.05)


def test_groups_that_are_too_small_or_constant_say_nothing() -> None:
    values = np.column_stack([np.arange(20.0), np.ones(20)])
    number = (np.arange(20) >= 20 - (MIN_COMPARED - 1)).astype(np.int64)
    small = compare_groups(rank_columns(values), number, 3)
    assert (small.auc == 0.5).all()
    assert (small.z == 0).all()
    enough = compare_groups(rank_columns(values), (np.arange(20) >= 20 - MIN_COMPARED).astype(np.int64), 2)
    assert enough.auc[1].tolist() == [1.0, 0.5]


def test_p_values_hold_for_all_comparisons_together() -> None:
    alarms = 0
    for world in range(60):
        rng = np.random.default_rng(world)
        families = [
            Family(rank_columns(rng.normal(size=(60, 8))), rng.integers(0, 3, 60), 3),
            Family(rank_columns(rng.normal(size=(30, 8))), rng.integers(0, 2, 30), 2),
        ]
        found = compare_together(families, permutations=39, seed=world)
        alarms += min(p.min() for p in found) <= 0.05
    assert alarms <= 9  # 3 are expected; one by one, nearly every world would raise one


def test_a_true_difference_is_found_among_many() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(80, 10))
    number = np.repeat([0, 1], 40)
    values[number == 1, 3] += 1.5
    (p,) = compare_together([Family(rank_columns(values), number, 2)], permutations=99, seed=0)
    assert p[1, 3] == pytest.approx(0.01)
    assert (np.delete(p[1], 3) > 0.05).all()
