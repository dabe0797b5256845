"""Which class an artifact leaks into: by the largest share, and a given one is doubted only where another is clear."""

from __future__ import annotations

import numpy as np
import pytest

from hansfree.studies.biased import doubt_class, likely_class

NAMES = ("benign", "malignant", "wart")


def test_the_largest_share_counts_not_the_most_images() -> None:
    assert likely_class(np.array([30, 20, 1]), np.array([300, 40, 1])) == 1, "one image is no share"


@pytest.mark.parametrize(
    ("carry", "all_of"),
    [
        ([30, 10, 0], [60, 60, 60]),
        ([30, 30, 30], [60, 60, 60]),
        ([20, 24, 20], [60, 60, 60]),  # another has more, and not clearly
        ([10, 70, 5], [60, 420, 30]),  # most images with it, as most without: it leaks nowhere
    ],
)
def test_a_given_class_is_left_in_peace(carry: list[int], all_of: list[int]) -> None:
    assert doubt_class(0, np.array(carry), np.array(all_of), NAMES) is None


def test_a_class_that_is_plainly_wrong_is_told_with_the_likely_one() -> None:
    assert doubt_class(0, np.array([6, 40, 4]), np.array([60, 60, 60]), NAMES) == (
        "biased_class is 'benign', but 40 of the 50 training images with the artifact (80 %) are of 'malignant', and 6 "
        "of 'benign': is it the class that the artifact leaks into?"
    )
