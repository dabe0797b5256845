"""Splits: no group in two parts, every class in its share, the same rows for the same seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansfree.data.lesions import SyntheticLesions
from hansfree.data.splits import SourceSubset, split_rows
from hansfree.errors import DataError, OptionError

MANY_SHARES = [(0.8, 0.1, 0.1), (0.5, 0.5), (0.9, 0.1), (0.29, 0.71), (0.6, 0.25, 0.15)]


@given(
    counts=st.lists(st.integers(0, 60), min_size=1, max_size=12).filter(lambda counts: sum(counts) >= 30),
    shares=st.sampled_from(MANY_SHARES),
    seed=st.integers(0, 99),
)
@settings(max_examples=80)
def test_every_row_is_in_one_part_and_every_class_in_its_share(counts, shares, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    parts = split_rows(labels, shares=shares, seed=seed)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    for part, share in zip(parts, shares):
        assert np.array_equal(part, np.sort(part))
        assert abs(len(part) - share * len(labels)) < 2
        for label, count in enumerate(counts):
            assert abs(np.sum(labels[part] == label) - share * count) < 1 + 1e-9


@pytest.mark.parametrize(
    ("labels", "groups", "shares", "sizes"),
    [
        (np.repeat([0, 1, 2], [100, 50, 10]), None, (0.8, 0.1, 0.1), [128, 16, 16]),
        (np.repeat(np.arange(100), 4), None, (0.8, 0.1, 0.1), [320, 40, 40]),  # 3.2, 0.4 and 0.4 images per class
        (np.repeat([0, 1], [60, 40]), [f"lone {row}" if row % 2 else "" for row in range(100)], None, [80, 10, 10]),
        (np.zeros(100, dtype=int), ["giant"] * 40 + [""] * 60, None, [80, 10, 10]),
        (np.zeros(85, dtype=int), ["a"] * 40 + ["b"] * 40 + [""] * 5, (0.4, 0.4, 0.2), [40, 40, 5]),
    ],
    ids=["exact", "small classes", "groups of one", "large group", "overfilled"],
)
def test_sizes_of_parts(labels, groups, shares, sizes):
    parts = split_rows(labels, groups=groups, shares=shares or (0.8, 0.1, 0.1))
    assert sorted(map(len, parts)) == pytest.approx(sorted(sizes), abs=int(len(np.unique(labels)) == 100))


@given(seed=st.integers(0, 99), mixed=st.booleans())
@settings(max_examples=40)
def test_no_group_is_in_two_parts_and_classes_keep_their_shares(seed, mixed):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 250, 800).astype(str)
    groups[rng.random(800) < 0.1] = ""
    kinds = {name: rng.choice(3, p=(0.6, 0.3, 0.1)) for name in np.unique(groups)}
    labels = np.array([rng.choice(3) if mixed or not name else kinds[name] for name in groups])
    parts = split_rows(labels, groups=groups, seed=seed)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(800))
    names = [set(groups[part]) - {""} for part in parts]
    assert sum(map(len, names)) == len(set.union(*names))
    for part, share in zip(parts, (0.8, 0.1, 0.1)):
        assert abs(len(part) / 800 - share) < 0.02
        mix = np.bincount(labels[part], minlength=3) / len(part)
        assert np.abs(mix - np.bincount(labels) / 800).max() < 0.06


def test_the_seed_decides_which_groups_are_in_a_part():
    groups = [str(row // 3) for row in range(100)]
    for options in ({}, {"groups": groups}):
        first, again, other = (split_rows(np.repeat([0, 1], 50), seed=seed, **options)[1] for seed in (0, 0, 1))
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("labels", "options", "error", "words"),
    [
        ([0, 0, 1], {}, DataError, "3 images cannot be split into 3 parts of 80 % / 10 % / 10 %"),
        ([], {}, DataError, "no images to split"),
        ([0] * 30, {"groups": ["one patient"] * 30}, DataError, "in their groups cannot be split"),
        ([0] * 3, {"groups": ["a", "b"]}, DataError, "3 labels need as many groups, not 2"),
        ([0] * 30, {"shares": (0.8, 0.1)}, OptionError, "sum to 1"),
        ([0] * 30, {"seed": -1}, OptionError, "seed must be"),
    ],
)
def test_what_cannot_be_split_is_refused(labels, options, error, words):
    with pytest.raises(error, match=words):
        split_rows(np.array(labels, dtype=int), **options)


def test_a_subset_keeps_the_images_and_their_names():
    source = SyntheticLesions(12, size=16, start=100)
    rows = np.array([7, 0, 3])
    subset = SourceSubset(source, rows)
    assert (len(subset), subset.class_names, subset.id_range) == (3, source.class_names, range(100, 112))
    for name in ("ids", "labels"):
        assert np.array_equal(getattr(subset, name), getattr(source, name)[rows])
    assert np.array_equal(subset.image(0), source.image(7))
    others = [SourceSubset(source, np.array(chosen)) for chosen in ([0, 3, 7], [7, 0])]
    others.append(SourceSubset(SyntheticLesions(12, size=17, start=100), rows))
    assert len({each.fingerprint for each in (subset, *others)}) == 4
    with pytest.raises(DataError, match="from 0 to 11"):
        SourceSubset(source, np.array([3, 12]))
