"""Inserted artifacts: exact shares, changed labels, the same artifact in every stage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansfree.data import LSB, Artifact, Brightness, Normalize, Plaster, SyntheticLesions, Timestamp, WithArtifact
from hansfree.data.splits import SourceSubset
from hansfree.errors import DataError, OptionError

SOURCE = SyntheticLesions(80, size=32)


@given(
    share=st.floats(0, 1),
    elsewhere=st.floats(0, 0.5),
    flip_share=st.floats(0, 0.5),
    only_class=st.integers(0, 3),
    seed=st.integers(0, 50),
)
@settings(max_examples=60, deadline=None)
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


def test_the_choice_of_images() -> None:
    everywhere = WithArtifact(SOURCE, LSB(), share=0.3)
    assert everywhere.has_artifact.sum() == 24
    assert len(np.unique(SOURCE.labels[everywhere.has_artifact])) == 4
    few, many = (WithArtifact(SOURCE, LSB(), share=share, only_class=1) for share in (0.2, 0.6))
    assert (few.has_artifact <= many.has_artifact).all()
    other = WithArtifact(SOURCE, LSB(), share=0.2, only_class=1, seed=1)
    assert not np.array_equal(few.has_artifact, other.has_artifact)
    # Written out: the figures of the embedded suite depend on this choice.
    order = np.random.default_rng((3, 0x57A3)).permutation(80)
    for source in (SOURCE, SyntheticLesions(80, size=32, start=160)):
        data = WithArtifact(source, LSB(), share=0.25, only_class=2, seed=3)
        chosen = [row for row in order if source.labels[row] == 2][:5]
        assert np.flatnonzero(data.has_artifact).tolist() == sorted(chosen)


@pytest.mark.parametrize("artifact", [Timestamp(), Brightness(), LSB(), Plaster()], ids=lambda artifact: artifact.name)
def test_an_image_gets_the_same_artifact_in_every_stage(artifact: Artifact) -> None:
    clean, biased = (WithArtifact(SOURCE, artifact, share=share) for share in (0, 1))
    half = WithArtifact(SOURCE, artifact, share=0.5, only_class=2)
    assert not clean.has_artifact.any()
    assert biased.has_artifact.all()
    for index in np.flatnonzero(SOURCE.labels == 2):
        expected = biased if half.has_artifact[index] else clean
        for got, wanted in zip(half.pixels(index), expected.pixels(index)):
            assert np.array_equal(got, wanted)
    assert np.array_equal(clean.pixels(3)[0], SOURCE.image(3))


@given(
    left_out=st.lists(st.integers(0, 79), unique=True, max_size=60),
    share=st.floats(0, 1),
    flip_share=st.floats(0, 1),
    seed=st.integers(0, 5),
)
@settings(deadline=None)
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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"share": 1.2}, "share is a part"),
        ({"share": float("nan")}, "share is a part"),
        ({"share": 0.5, "elsewhere": 0.1}, "give only_class"),
        ({"share": 0.5, "flip_share": 0.1}, "give only_class"),
        ({"share": 0.5, "only_class": 4}, "There is no class 4.*3 ragged-variegated"),
        ({"share": 0.5, "only_class": -1}, "There is no class -1"),
        ({"share": 0.5, "only_class": 0, "elsewhere": 0.6, "flip_share": 0.6}, "more than all"),
        ({"share": 0.5, "seed": -1}, "seed is 0 or more"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        WithArtifact(SOURCE, LSB(), **options)


@pytest.mark.parametrize("ids", [[5, 5], [-1, 3], [0, 80]])
def test_invalid_ids_are_rejected(ids: list[int]) -> None:
    source = SourceSubset(SOURCE, np.array([0, 1]))
    source.ids = np.array(ids)
    with pytest.raises(DataError, match="ids of a source are different numbers from 0 to 79"):
        WithArtifact(source, LSB(), share=0.5)
