from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansfree.errors import DataError
from hansfree.metrics import NO_PREDICTION, lost_classes, paired_difference

pairs = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40)


@settings(deadline=None)  # shared cores
@given(pairs)
def test_paired_difference_is_the_mean_difference_with_its_plug_in_error(outcomes: list[tuple[bool, bool]]) -> None:
    a, b = np.array(outcomes).T
    difference, stderr = paired_difference(a, b)
    each = a.astype(float) - b.astype(float)
    assert difference == pytest.approx(each.mean())
    assert stderr == pytest.approx(each.std() / np.sqrt(each.size), abs=1e-12)


@settings(deadline=None)  # shared cores
@given(pairs)
def test_swapping_the_models_turns_the_sign_only(outcomes: list[tuple[bool, bool]]) -> None:
    a, b = np.array(outcomes).T
    difference, stderr = paired_difference(a, b)
    assert paired_difference(b, a) == (-difference, stderr)


def test_paired_error_is_the_spread_over_redrawn_images() -> None:
    rng = np.random.default_rng(0)
    differences, errors = [], []
    for _ in range(2000):
        a = rng.random(100) < 0.8
        b = a ^ (rng.random(100) < 0.1)
        difference, stderr = paired_difference(a, b)
        differences.append(difference)
        errors.append(stderr)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(differences), rel=0.15)
    unpaired = np.sqrt(0.8 * 0.2 / 100 + 0.74 * 0.26 / 100)
    assert np.mean(errors) < 0.6 * unpaired


@pytest.mark.parametrize(("a", "b"), [([], []), ([True], [True, False]), ([[True]], [[True]])])
def test_unpaired_input_is_refused(a: list[bool], b: list[bool]) -> None:
    with pytest.raises(DataError, match="the same images twice"):
        paired_difference(a, b)


def test_lost_classes() -> None:
    before = np.array([0, 1, 2, 2, NO_PREDICTION])
    assert lost_classes(before, np.array([0, 0, 0, 3, 0]), 4) == (1, 2)
    assert lost_classes(before, before, 4) == ()
    assert lost_classes(before, np.full(5, NO_PREDICTION), 4) == (0, 1, 2)
    assert lost_classes(np.array([0, 0]), np.array([1, 1]), 4) == (0,)


@pytest.mark.parametrize("wrong", [4, -2])
def test_lost_classes_refuses_what_is_no_class(wrong: int) -> None:
    with pytest.raises(DataError, match="classes 0 to 3"):
        lost_classes(np.array([0]), np.array([wrong]), 4)
