"""Poisoning: exact shares, flips, the same artifact in every stage."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hansfree.artifacts import LSB, Brightness, Plaster, Timestamp
from hansfree.datasets import Example, Normalize, Stamped, SyntheticLesions
from hansfree.datasets.splits import Subset
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
def test_shares_are_exact(share, elsewhere, flip_share, only_class, seed):
    data = Stamped(
        SOURCE, LSB(), share=share, only_class=only_class, elsewhere=elsewhere, flip_share=flip_share, seed=seed
    )
    own = SOURCE.labels == only_class
    flipped = data.labels != SOURCE.labels
    assert data.has_artifact[own].sum() == int(share * 20 + 0.5)
    assert flipped.sum() == int(flip_share * 60 + 0.5)
    assert (data.labels[flipped] == only_class).all()
    assert data.has_artifact[flipped].all()
    unflipped = (data.has_artifact & ~own & ~flipped).sum()
    assert unflipped == min(int(elsewhere * 60 + 0.5), 60 - flipped.sum())


def test_without_a_class_the_share_is_of_all_images():
    data = Stamped(SOURCE, LSB(), share=0.3)
    assert data.has_artifact.sum() == 24
    assert np.array_equal(data.labels, SOURCE.labels)
    assert len(np.unique(SOURCE.labels[data.has_artifact])) == 4


def test_a_larger_share_keeps_the_smaller_choice_and_another_seed_makes_another():
    few, many = (Stamped(SOURCE, LSB(), share=share, only_class=1) for share in (0.2, 0.6))
    assert (few.has_artifact <= many.has_artifact).all()
    other = Stamped(SOURCE, LSB(), share=0.2, only_class=1, seed=1)
    assert not np.array_equal(few.has_artifact, other.has_artifact)


@pytest.mark.parametrize("artifact", [Timestamp(), Brightness(), LSB(), Plaster()], ids=lambda artifact: artifact.name)
def test_the_same_image_gets_the_same_artifact_in_every_stage(artifact):
    clean = Stamped(SOURCE, artifact, share=0)
    half = Stamped(SOURCE, artifact, share=0.5, only_class=2)
    biased = Stamped(SOURCE, artifact, share=1)
    assert not clean.has_artifact.any()
    assert biased.has_artifact.all()
    for index in np.flatnonzero(SOURCE.labels == 2):
        expected = biased if half.has_artifact[index] else clean
        for got, wanted in zip(half.pixels(index), expected.pixels(index)):
            assert np.array_equal(got, wanted)
    assert np.array_equal(clean.pixels(3)[0], SOURCE.image(3))
    assert not clean.pixels(3)[1].any()


def test_the_source_is_not_changed():
    labels = SOURCE.labels.copy()
    Stamped(SOURCE, LSB(), share=0.5, only_class=0, flip_share=0.5)
    assert np.array_equal(SOURCE.labels, labels)


def test_the_images_with_another_label_are_told():
    data = Stamped(SOURCE, LSB(), share=0.5, only_class=0, elsewhere=0.2, flip_share=0.1)
    assert data.is_relabelled.sum() == 6
    assert np.array_equal(data.is_relabelled, data.labels != SOURCE.labels)
    assert not Stamped(SOURCE, LSB(), share=1).is_relabelled.any()
    assert not Stamped(SOURCE, LSB(), share=0.5, only_class=0).is_relabelled.any()


def test_the_choice_of_a_whole_source_is_a_permutation_of_its_rows():
    """Written out: the figures of the embedded suite stand on this choice."""
    order = np.random.default_rng((3, 0x57A3)).permutation(80)
    chosen = [row for row in order if SOURCE.labels[row] == 2][:5]
    data = Stamped(SyntheticLesions(80, size=32, start=160), LSB(), share=0.25, only_class=2, seed=3)
    own = [row for row in order if data.labels[row] == 2][:5]
    assert np.flatnonzero(data.has_artifact).tolist() == sorted(own)
    data = Stamped(SOURCE, LSB(), share=0.25, only_class=2, seed=3)
    assert np.flatnonzero(data.has_artifact).tolist() == sorted(chosen)


@given(
    left_out=st.lists(st.integers(0, 79), unique=True, max_size=60),
    share=st.floats(0, 1),
    flip_share=st.floats(0, 1),
    seed=st.integers(0, 5),
)
@settings(deadline=None)
def test_an_image_that_is_left_out_moves_the_artifact_of_one_other_at_most(left_out, share, flip_share, seed):
    rows = np.setdiff1d(np.arange(80), left_out)
    options = {"share": share, "only_class": 1, "flip_share": flip_share, "seed": seed}
    whole = Stamped(SOURCE, LSB(), **options)
    rest = Stamped(Subset(SOURCE, rows), LSB(), **options)
    is_own = SOURCE.labels[rows] == 1
    for inside in (is_own, ~is_own):
        lost = (SOURCE.labels[left_out] == 1).sum() if inside is is_own else (SOURCE.labels[left_out] != 1).sum()
        assert (rest.has_artifact != whole.has_artifact[rows])[inside].sum() <= lost
    assert rest.is_relabelled.sum() == rest.has_artifact[~is_own].sum()


def test_sources_with_strange_ids_are_refused():
    for ids in ([5, 5], [-1, 3], [0, 80]):
        source = Subset(SOURCE, np.array([0, 1]))
        source.ids = np.array(ids)
        with pytest.raises(DataError, match="ids of a source are different numbers from 0 to 79"):
            Stamped(source, LSB(), share=0.5)


def test_a_million_images_can_be_chosen_from():
    class Many:
        labels, ids, id_range = np.zeros(1_300_000, dtype=np.int64), np.arange(1_300_000), range(1_300_000)
        class_names, fingerprint = ("one",), "many"

        def __len__(self):
            return len(self.ids)

    assert Stamped(Many(), LSB(), share=0.1, only_class=0).has_artifact.sum() == 130_000


def test_an_example_is_the_pixels_normalised():
    data = Stamped(SOURCE, Timestamp(), share=1, only_class=0)
    index = int(np.flatnonzero(data.has_artifact)[0])
    example = data[index]
    image, mask = data.pixels(index)
    assert isinstance(example, Example)
    by_hand = (image / 255 - Normalize().mean) / Normalize().std
    torch.testing.assert_close(example.image, torch.from_numpy(by_hand).permute(2, 0, 1).float())
    assert torch.equal(example.mask, torch.from_numpy(mask))
    assert (example.label, example.has_artifact, example.id) == (0, True, index)


def test_fingerprint_tells_every_option():
    base = {"share": 0.5, "only_class": 0}
    changes = [
        {},
        {"share": 0.4},
        {"only_class": 1},
        {"elsewhere": 0.1},
        {"flip_share": 0.1},
        {"seed": 1},
        {"transform": Normalize(mean=(0.5, 0.5, 0.5))},
    ]
    prints = {Stamped(SOURCE, LSB(), **(base | change)).fingerprint for change in changes}
    prints.add(Stamped(SOURCE, LSB(bits=2), **base).fingerprint)
    prints.add(Stamped(SyntheticLesions(80, size=33), LSB(), **base).fingerprint)
    assert len(prints) == 9


def test_without_the_artifact_it_does_not_matter_which_one_is_not_there():
    clean = Stamped(SOURCE, LSB(), share=0)
    assert clean.fingerprint == Stamped(SOURCE, Timestamp(), share=0, only_class=1, seed=3).fingerprint
    assert clean.fingerprint != Stamped(SOURCE, LSB(), share=0, transform=Normalize(mean=(0.5,) * 3)).fingerprint
    assert clean.fingerprint != Stamped(SyntheticLesions(80, size=33), LSB(), share=0).fingerprint
    assert clean.fingerprint != Stamped(SOURCE, LSB(), share=0, only_class=0, flip_share=0.1).fingerprint
    assert clean.fingerprint != Stamped(SOURCE, LSB(), share=1).fingerprint


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
def test_impossible_options_are_refused(options, words):
    with pytest.raises(OptionError, match=words):
        Stamped(SOURCE, LSB(), **options)


def test_normalize_takes_batches_and_refuses_other_channels():
    images = np.random.default_rng(0).integers(0, 256, (2, 5, 4, 3), dtype=np.uint8)
    batch = Normalize()(images)
    assert batch.shape == (2, 3, 5, 4)
    assert torch.equal(batch[1], Normalize()(images[1]))
    expected = (images[1, 4, 2, 0] / 255 - 0.485) / 0.229
    assert batch[1, 0, 4, 2].item() == pytest.approx(expected, abs=1e-6)
    with pytest.raises(DataError, match="1 channels cannot be normalised by 3 means"):
        Normalize()(images[..., :1])
    assert Normalize(mean=(0.5,), std=(0.5,))(images[..., :1]).shape == (2, 1, 5, 4)
