"""Inserted artifacts and biased data: exact shares, changed labels, the same artifact in every stage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansfree.data import (
    LSB,
    SETS,
    Brightness,
    Normalize,
    SourceSubset,
    SyntheticLesions,
    Timestamp,
    WithArtifact,
    check_artifact_labels,
    check_same_images,
    count_images,
    insert_bias,
)
from hansfree.errors import DataError

SOURCE = SyntheticLesions(80, size=32)


@given(
    share=st.floats(0, 1),
    elsewhere=st.floats(0, 0.5),
    flip_share=st.floats(0, 0.5),
    only_class=st.integers(0, 3),
    seed=st.integers(0, 50),
)
@settings(max_examples=60)
def test_shares_are_exact(share: float, elsewhere: float, flip_share: float, only_class: int, seed: int) -> None:
    before = SOURCE.labels.copy()
    data = WithArtifact(
        SOURCE, LSB(), share=share, only_class=only_class, elsewhere=elsewhere, flip_share=flip_share, seed=seed
    )
    own, flipped = SOURCE.labels == only_class, data.labels != SOURCE.labels
    assert data.has_artifact[own].sum() == int(share * 20 + 0.5)
    assert flipped.sum() == int(flip_share * 60 + 0.5)
    assert (data.labels[flipped] == only_class).all()
    assert data.has_artifact[flipped].all()
    assert np.array_equal(data.is_relabelled, flipped)
    unflipped = (data.has_artifact & ~own & ~flipped).sum()
    assert unflipped == min(int(elsewhere * 60 + 0.5), 60 - flipped.sum())
    assert np.array_equal(SOURCE.labels, before)


@pytest.mark.parametrize(("only_class", "share"), [(2, 0.25), (2, 0.6), (None, 0.3)])
def test_the_choice_of_images(only_class: int | None, share: float) -> None:
    """Written out: the figures of the embedded suite depend on it."""
    order = np.random.default_rng((3, 0x57A3)).permutation(80)
    for source in (SOURCE, SyntheticLesions(80, size=32, start=160)):
        data = WithArtifact(source, LSB(), share=share, only_class=only_class, seed=3)
        rows = [row for row in order if only_class in (None, source.labels[row])]
        assert np.flatnonzero(data.has_artifact).tolist() == sorted(rows[: round(share * len(rows))])


@given(
    left_out=st.lists(st.integers(0, 79), unique=True, max_size=60),
    share=st.floats(0, 1),
    flip_share=st.floats(0, 1),
    seed=st.integers(0, 5),
)
def test_a_missing_image_moves_the_artifact_of_one_other_at_most(
    left_out: list[int], share: float, flip_share: float, seed: int
) -> None:
    rows = np.setdiff1d(np.arange(80), left_out)
    options: dict[str, Any] = {"share": share, "only_class": 1, "flip_share": flip_share, "seed": seed}
    whole = WithArtifact(SOURCE, LSB(), **options)
    rest = WithArtifact(SourceSubset(SOURCE, rows), LSB(), **options)
    is_own = SOURCE.labels[rows] == 1
    for inside in (is_own, ~is_own):
        lost = (SOURCE.labels[left_out] == 1).sum() if inside is is_own else (SOURCE.labels[left_out] != 1).sum()
        assert (rest.has_artifact != whole.has_artifact[rows])[inside].sum() <= lost
    assert rest.is_relabelled.sum() == rest.has_artifact[~is_own].sum()


def test_clean_images_share_their_cache_whatever_the_artifact() -> None:
    clean = WithArtifact(SOURCE, LSB(), share=0)
    assert clean.fingerprint == WithArtifact(SOURCE, Timestamp(), share=0, only_class=1, seed=3).fingerprint
    for other in (
        WithArtifact(SOURCE, LSB(), share=0, transform=Normalize(mean=(0.5,) * 3)),
        WithArtifact(SyntheticLesions(80, size=33), LSB(), share=0),
        WithArtifact(SOURCE, LSB(), share=0, only_class=0, flip_share=0.1),
    ):
        assert clean.fingerprint != other.fingerprint


@pytest.mark.parametrize("ids", [[5, 5], [-1, 3], [0, 80]])
def test_invalid_ids_are_rejected(ids: list[int]) -> None:
    source = SourceSubset(SOURCE, np.array([0, 1]))
    source.ids = np.array(ids)
    with pytest.raises(DataError, match="ids of a source are different numbers from 0 to 79"):
        WithArtifact(source, LSB(), share=0.5)


def test_sets_that_could_not_prove_anything_are_rejected() -> None:
    clean, mixed, biased = (WithArtifact(SOURCE, LSB(), share=share) for share in (0.0, 0.25, 1.0))
    check_artifact_labels(clean, biased)
    check_same_images(clean, biased)
    with pytest.raises(DataError, match=r"^20 of the 80 clean images"):
        check_artifact_labels(mixed, biased)
    with pytest.raises(DataError, match=r"^60 of the 80 biased images"):
        check_artifact_labels(clean, mixed)
    other = WithArtifact(SyntheticLesions(80, size=32, start=1), LSB(), share=1)
    with pytest.raises(DataError, match="must be the same images"):
        check_same_images(clean, other)


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
