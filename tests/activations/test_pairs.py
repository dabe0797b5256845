"""Pairs in the cache: two sets joined, and who belongs to whom in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, TensorDataset

from hansfree.activations import collect_activations, find_pairs, join
from hansfree.errors import CacheError, DataError
from tests.corrections.examples import CASES, TinyImages, collect

CASE = CASES["convolution"]


def test_joined_activations_are_those_of_both_sets() -> None:
    model = CASE.model()
    parts = [collect(CASE, model, TinyImages(9, artifact=kind)) for kind in ("leaks", "all")]
    joined, expected = join(*parts), collect(CASE, model, TinyImages(9, artifact="pairs"))
    for name in ("labels", "ids", "has_artifact"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(expected, name))
    np.testing.assert_allclose(joined.pooled, expected.pooled, rtol=1e-5)
    streams = [torch.cat([batch[0] for batch in found.stream()]) for found in (joined, expected)]
    torch.testing.assert_close(*streams)
    with pytest.raises(CacheError, match="same layer"):
        join(parts[0], replace(parts[1], layer="conv"))


def test_pairs_are_found_by_id_and_those_under_two_labels_are_refused() -> None:
    model = CASE.model()
    paired = collect(CASE, model, TinyImages(9, artifact="pairs"))
    rows, bits = find_pairs(paired), np.asarray(paired.has_artifact)
    np.testing.assert_array_equal(paired.ids[rows[:, 0]], paired.ids[rows[:, 1]])
    assert not bits[rows[:, 0]].any()
    assert bits[rows[:, 1]].all()
    assert len(rows) == int((~bits).sum()) > 0
    labels = paired.labels.copy()
    labels[rows[0, 0]] += 1
    with pytest.raises(DataError, match="one label without"):
        find_pairs(replace(paired, labels=labels))


def test_plain_tuples_in_a_row_have_no_ids_to_be_paired_by() -> None:
    model, parts = CASE.model(), [TinyImages(9, artifact=kind) for kind in ("none", "all")]
    plain = [
        TensorDataset(part.images, torch.from_numpy(part.labels), torch.from_numpy(part.has_artifact)) for part in parts
    ]
    activations = collect_activations(model, CASE.layer, ConcatDataset(plain))
    with pytest.raises(DataError, match=r"the sets must yield ids \(hansfree\.Example\)"):
        find_pairs(activations)
