from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hansfree._internal.hashing import seeded

keys = st.lists(st.integers(0, 2**31), min_size=1, max_size=3)


def draw(*key: int) -> list[float]:
    with seeded(*key) as generator:
        return [*torch.rand(3).tolist(), *torch.rand(3, generator=generator).tolist()]


@settings(deadline=None, max_examples=50)
@given(keys, keys)
def test_numbers_belong_to_their_key(a: list[int], b: list[int]) -> None:
    assert draw(*a) == draw(*a)
    if len(a) == len(b) and a != b:
        assert draw(*a) != draw(*b)


def test_order_of_the_key_counts() -> None:
    assert draw(1, 2) != draw(2, 1)


def test_numbers_depend_on_nothing_but_the_key() -> None:
    number = np.random.SeedSequence((7, 3)).generate_state(1, np.uint64)[0] // 2  # torch takes 63 bits
    expected = torch.rand(3, generator=torch.Generator().manual_seed(int(number))).tolist()
    assert draw(7, 3) == [*expected, *expected]


@pytest.mark.parametrize("fails", [False, True])
def test_global_state_stays_as_it_was(fails: bool) -> None:
    torch_before, numpy_before, python_before = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        with seeded(0):
            torch.rand(10)
            if fails:
                raise RuntimeError
    except RuntimeError:
        assert fails
    assert torch.equal(torch_before, torch.get_rng_state())
    assert all(np.array_equal(a, b) for a, b in zip(numpy_before, np.random.get_state()))
    assert python_before == random.getstate()


@pytest.mark.skipif(torch.cuda.is_available() or torch.backends.mps.is_available(), reason="a GPU is seeded too")
def test_no_call_stack_is_put_into_words_for_gpus_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = draw(1)
    monkeypatch.setattr("traceback.format_stack", None)
    assert draw(1) == expected


def test_the_global_generator_does_not_reach_in() -> None:
    first = draw(1)
    torch.rand(5)
    assert draw(1) == first


def test_drawing_from_the_generator_does_not_move_the_global_one() -> None:
    with seeded(1) as generator:
        torch.rand(50, generator=generator)
        after = torch.rand(3).tolist()
    assert after == draw(1)[:3]
