"""Channels and positions of maps, tokens and flat activations, against loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from hansfree.activations.cache import (
    along,
    at_every_position,
    channel_axis,
    count_positions,
    pool,
    position_axes,
    random_signs,
    sum_positions,
)
from hansfree.errors import DataError

QUICK = settings(max_examples=40, deadline=None)

sizes = st.integers(1, 4)
shapes = st.one_of(st.tuples(sizes, sizes), st.tuples(sizes, sizes, sizes), st.tuples(sizes, sizes, sizes, sizes))
activations = shapes.flatmap(
    lambda shape: hnp.arrays(np.float64, shape, elements=st.floats(-10, 10, allow_subnormal=False))
).map(torch.from_numpy)


def vectors(a: Tensor, image: int) -> list[Tensor]:
    """Return the channel vector at each position of an image, in order: the definition, written out."""
    if a.ndim == 2:
        return [a[image]]
    if a.ndim == 3:
        return [a[image, token] for token in range(a.shape[1])]
    return [a[image, :, y, x] for y, x in itertools.product(range(a.shape[2]), range(a.shape[3]))]


def channels(a: Tensor) -> int:
    return len(vectors(a, 0)[0])


@QUICK
@given(activations)
def test_pool_and_sum(a: Tensor) -> None:
    for image in range(len(a)):
        stack = torch.stack(vectors(a, image))
        assert torch.equal(pool(a, "max")[image], stack.amax(0))
        assert torch.allclose(pool(a, "mean")[image], stack.mean(0))
        assert torch.allclose(sum_positions(a)[image], stack.sum(0))
    assert pool(a, "max").shape == pool(a, "mean").shape == sum_positions(a).shape == (len(a), channels(a))


@QUICK
@given(activations)
def test_counts(a: Tensor) -> None:
    assert count_positions(tuple(a.shape)) == len(vectors(a, 0))
    assert a.shape[channel_axis(a.ndim)] == channels(a)
    assert sorted([0, channel_axis(a.ndim), *position_axes(a.ndim)]) == list(range(a.ndim))


@QUICK
@given(activations, st.integers(0, 99))
def test_along(a: Tensor, seed: int) -> None:
    direction = torch.randn(channels(a), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found = along(a, direction)
    for image in range(len(a)):
        assert torch.allclose(found[image], torch.stack([v @ direction for v in vectors(a, image)]))


@QUICK
@given(activations, st.integers(0, 99))
def test_at_every_position(a: Tensor, seed: int) -> None:
    added = torch.randn(len(a), channels(a), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    shifted = a + at_every_position(added, a.ndim)
    assert shifted.shape == a.shape
    for image in range(len(a)):
        for before, after in zip(vectors(a, image), vectors(shifted, image)):
            assert torch.equal(after, before + added[image])


@QUICK
@given(activations, st.integers(0, 99))
def test_random_signs(a: Tensor, seed: int) -> None:
    before = torch.get_rng_state()
    signs = random_signs(a, torch.Generator().manual_seed(seed))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(signs, random_signs(a, torch.Generator().manual_seed(seed)))
    assert signs.dtype == a.dtype
    assert signs.abs().eq(1).all()
    whole = signs.expand_as(a)
    for image in range(len(a)):
        assert all((vector == vector[0]).all() for vector in vectors(whole, image))
    assert signs.numel() == len(a) * count_positions(tuple(a.shape))


def test_random_signs_differ_between_images_and_positions_and_average_to_nothing() -> None:
    signs = random_signs(torch.zeros(100, 3, 10, 10), torch.Generator().manual_seed(0)).squeeze(1)
    assert abs(signs.mean()) < 0.05  # five standard errors
    assert signs.mean(0).abs().max() < 0.5
    assert signs.mean((1, 2)).abs().max() < 0.5


@pytest.mark.parametrize("ndim", [0, 1, 5])
def test_other_shapes_are_refused(ndim: int) -> None:
    with pytest.raises(DataError, match=f"this one has {ndim} axes"):
        pool(torch.zeros([2] * ndim), "max")
