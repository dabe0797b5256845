"""Poisoning: exact shares, flips, the same artifact in every stage."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from hansfree.artifacts import LSB, Brightness, Plaster, Timestamp
from hansfree.datasets import Example, InMemory, Normalize, Stamped, SyntheticLesions
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


def test_an_example_is_the_pixels_normalised():
    data = Stamped(SOURCE, Timestamp(), share=1, only_class=0)
    index = int(np.flatnonzero(data.has_artifact)[0])
    example = data[index]
    image, mask = data.pixels(index)
    assert isinstance(example, Example)
    assert torch.equal(data.transform.invert(example.image), torch.from_numpy(image).permute(2, 0, 1))
    assert torch.equal(example.mask, torch.from_numpy(mask))
    assert (example.label, example.has_artifact, example.id) == (0, True, index)


def test_in_memory_serves_the_same_examples():
    data = Stamped(SyntheticLesions(24, size=32, start=5), Plaster(), share=0.5, only_class=1, flip_share=0.2)
    kept = InMemory(data)
    assert len(kept) == len(data) == 24
    for name in ("labels", "ids", "has_artifact", "class_names", "fingerprint", "transform"):
        assert np.array_equal(getattr(kept, name), getattr(data, name))
    for plain, quick in zip(DataLoader(data, batch_size=10), DataLoader(kept, batch_size=10)):
        for one, other in zip(plain, quick):
            assert one.dtype == other.dtype
            assert torch.equal(one, other)
    for one, other in zip(kept.batch([3, 1]), next(iter(DataLoader([data[3], data[1]], batch_size=2)))):
        assert torch.equal(one, other)
    for one, other in zip(kept[4], data[4]):
        assert torch.equal(torch.as_tensor(one), torch.as_tensor(other))


def test_in_memory_gives_copies():
    kept = InMemory(Stamped(SyntheticLesions(2, size=16), LSB(), share=1))
    kept.pixels(0)[0][:] = 0
    kept[0].mask[:] = False
    assert kept.images[0].any()
    assert kept.masks[0].all()


def test_in_memory_needs_one_size():
    class Mixed(SyntheticLesions):
        def image(self, index: int) -> np.ndarray:
            return super().image(index)[: 16 - index]

    with pytest.raises(DataError, match="Image 1 has shape"):
        InMemory(Stamped(Mixed(3, size=16), LSB(), share=0))


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
