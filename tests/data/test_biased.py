"""Biased data: sets that could not prove anything are rejected; counts; the biased class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from hansfree.data import SETS, Brightness, SyntheticLesions, check_artifact_labels, check_same_images, count_images
from hansfree.data.biased import check_biased_class_counts, infer_biased_class, insert_bias
from hansfree.errors import DataError

NAMES = ("benign", "malignant", "wart")


@dataclass
class Held:
    ids: np.ndarray
    labels: np.ndarray
    has_artifact: np.ndarray | None


def held(bits: list[bool] | None, *, first: int = 0, label: int = 0) -> Held:
    n = 4 if bits is None else len(bits)
    return Held(np.arange(first, first + n), np.full(n, label), None if bits is None else np.array(bits))


def test_contradicting_artifact_labels_are_rejected() -> None:
    check_artifact_labels(held([False] * 4), held([True] * 3))
    check_artifact_labels(held(None), held(None))
    with pytest.raises(DataError, match=r"^1 of the 4 clean images"):
        check_artifact_labels(held([False, False, True, False]), held([True]))
    with pytest.raises(DataError, match=r"^2 of the 3 biased images"):
        check_artifact_labels(held([False]), held([False, True, False]))


def test_pairs_are_the_same_images() -> None:
    check_same_images(held(None), held([True] * 4))
    for other in (held(None, first=1), held(None, label=1), held([True] * 3)):
        with pytest.raises(DataError, match="must be the same images"):
            check_same_images(held(None), other)


def test_counts_are_those_of_the_sets() -> None:
    parts = [SyntheticLesions(40, size=32, start=40 * part) for part in range(3)]
    data = insert_bias(parts, Brightness(), biased_class=1, share=0.5)
    counts = count_images(data)
    assert len(counts) == len(SETS) * len(data.train.class_names)
    for name in SETS:
        images, rows = getattr(data, name), [row for row in counts if row["set"] == name.replace("_", " ")]
        assert sum(row["images"] for row in rows) == len(images)
        assert sum(row["with_artifact"] for row in rows) == int(images.has_artifact.sum())
    assert [row["class"] for row in counts[:4] if row["with_artifact"]] == [data.train.class_names[1]]


@pytest.mark.parametrize(
    ("carry", "all_of", "is_doubted"),
    [
        ([30, 10, 0], [60, 60, 60], False),
        ([30, 30, 30], [60, 60, 60], False),
        ([20, 24, 20], [60, 60, 60], False),  # another has more, but not clearly
        ([10, 70, 5], [60, 420, 30], False),  # most images with it, as most without: no correlation
        ([6, 40, 4], [60, 60, 60], True),
    ],
)
def test_a_given_class_is_doubted_where_another_is_clear(carry: list[int], all_of: list[int], is_doubted: bool) -> None:
    assert infer_biased_class(np.array([30, 20, 1]), np.array([300, 40, 1])) == 1  # one image is no share
    found = check_biased_class_counts(0, np.array(carry), np.array(all_of), NAMES)
    assert (found is not None) == is_doubted
    assert found is None or "40 of the 50 training images with the artifact (80 %) are of 'malignant'" in found
