"""Rows of a cache: the same numbers as a pass over the same images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hansfree.activations import collect_activations, compute_features, cut_again, join, pick, pool_again
from hansfree.errors import DataError
from tests.corrections.examples import CASES, TinyImages

CASE = CASES["mlp"]
ROWS = np.array([7, 0, 19, 7])


@pytest.mark.parametrize("is_on_disk", [False, True])
def test_rows_are_those_of_the_whole(is_on_disk: bool, tmp_path: Path) -> None:
    model = CASE.model()
    folder = tmp_path if is_on_disk else None
    every = collect_activations(model, CASE.layer, TinyImages(20), folder=folder, data_key="tiny", batch_size=3)
    some = pick(every, ROWS)
    assert len(some) == 4
    for name in ("pooled", "labels", "ids", "has_artifact"):
        assert np.array_equal(getattr(some, name), np.asarray(getattr(every, name))[ROWS])
    whole = torch.cat([layer for layer, *_ in every.stream()])
    assert torch.equal(torch.cat([layer for layer, *_ in some.stream()]), whole[ROWS])
    cut = cut_again(model, some)
    expected = compute_features(cut, every).values[0][ROWS]
    assert np.array_equal(compute_features(cut, some).values[0], expected)


def test_rows_of_two_sets_mix_them() -> None:
    model = CASE.model()
    clean, biased = (collect_activations(model, CASE.layer, TinyImages(6, artifact=kind)) for kind in ("none", "all"))
    mixed = pick(join(clean, biased), np.array([0, 7, 2]))
    assert mixed.has_artifact is not None
    assert mixed.has_artifact.tolist() == [False, True, False]
    assert mixed.ids.tolist() == [100, 101, 102]
    assert np.array_equal(mixed.pooled[1], biased.pooled[1])


def test_another_pooling_is_that_of_another_pass() -> None:
    model = CASE.model()
    images = TinyImages(6)
    expected = collect_activations(model, CASE.layer, images, pooling="mean")
    found = pool_again(collect_activations(model, CASE.layer, images), "mean")
    assert found.pooling == "mean"
    np.testing.assert_array_equal(found.pooled, expected.pooled)


@pytest.mark.parametrize("rows", [[-1, 0], [0, 6]])
def test_rows_that_are_not_there_are_refused(rows: list[int]) -> None:
    every = collect_activations(CASE.model(), CASE.layer, TinyImages(6))
    with pytest.raises(DataError, match="there are 6 images"):
        pick(every, np.array(rows))
