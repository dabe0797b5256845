"""Datasets: one contract for all of them, and what each adds to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from hansfree.data import (
    LSB,
    Brightness,
    ImageDataset,
    InMemory,
    LabelledImages,
    MultiArtifact,
    Normalize,
    Pasted,
    Plaster,
    Subset,
    SyntheticLesions,
    Timestamp,
    WithArtifact,
    WithMasks,
)
from hansfree.errors import DataError, OptionError

SOURCE = SyntheticLesions(12, size=32, start=5)
OTHER = SyntheticLesions(12, size=32, start=5, seed=1)
BITS = np.arange(12) % 3 == 0
GREY = Normalize(mean=(0.5, 0.5, 0.5))
INSERTED = WithArtifact(SOURCE, Plaster(), share=0.5, only_class=1, flip_share=0.4)
HALF = WithArtifact(SOURCE, Timestamp(), share=0.5)
CLEAN, DONORS = (Subset(HALF, np.flatnonzero(HALF.has_artifact == bit)) for bit in (False, True))
DONOR_MASKS = np.stack([DONORS.pixels(i)[1] for i in range(len(DONORS))])
MASKS = np.random.default_rng(0).random((6, 32, 32)) < 0.3
ARTIFACTS = {0: Timestamp(), 2: Brightness()}


def labelled(source: Any = SOURCE, bits: Any = BITS, **options: Any) -> LabelledImages:
    return LabelledImages(source, bits, **options)


def inserted(source: Any = SOURCE, artifact: Any = LSB(), **options: Any) -> WithArtifact:  # noqa: B008
    return WithArtifact(source, artifact, **{"share": 0.5, "only_class": 0, **options})


def several(source: Any = SOURCE, artifacts: Any = ARTIFACTS, **options: Any) -> MultiArtifact:
    return MultiArtifact(source, artifacts, **{"target_class": 0, "share": 0.4, **options})


def pasted(clean: Any = CLEAN, donors: Any = DONORS, masks: Any = DONOR_MASKS, **options: Any) -> Pasted:
    return Pasted(clean, donors, masks, **options)


def subset(dataset: Any = INSERTED, rows: Any = range(5)) -> Subset:
    return Subset(dataset, rows)


def masked(dataset: Any = HALF, masks: Any = MASKS) -> WithMasks:
    return WithMasks(dataset, masks)


# For each dataset: how it is made, and the options that make it another one.
VARIANTS: dict[str, tuple[Callable[..., ImageDataset], list[dict[str, Any]]]] = {
    "LabelledImages": (labelled, [{"bits": ~BITS}, {"source": OTHER}, {"transform": GREY}]),
    "Subset": (subset, [{"rows": range(6)}, {"rows": range(4, -1, -1)}, {"dataset": inserted()}]),
    "InMemory": (lambda dataset=INSERTED: InMemory(dataset), [{"dataset": HALF}]),
    "WithMasks": (masked, [{"masks": ~MASKS}, {"dataset": WithArtifact(OTHER, Timestamp(), share=0.5)}]),
    "WithArtifact": (
        inserted,
        [
            *({"share": 0.3}, {"only_class": 1}, {"elsewhere": 0.1}, {"flip_share": 0.1}, {"seed": 1}),
            *({"transform": GREY}, {"artifact": LSB(bits=2)}, {"source": OTHER}),
        ],
    ),
    "MultiArtifact": (
        several,
        [
            *({"share": 0.5}, {"seed": 1}, {"target_class": 2}, {"transform": GREY}, {"source": OTHER}),
            *({"artifacts": {**ARTIFACTS, 1: LSB()}}, {"artifacts": {0: Brightness(), 2: Timestamp()}}),
        ],
    ),
    "Pasted": (pasted, [{"seed": 1}, {"masks": ~DONOR_MASKS}]),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_contract(name: str) -> None:
    make, others = VARIANTS[name]
    data = make()
    n = len(data)
    assert (data.labels.dtype, data.ids.dtype, data.has_artifact.dtype) == (np.int64, np.int64, bool)
    assert data.labels.shape == data.ids.shape == data.has_artifact.shape == data.is_relabelled.shape == (n,)
    for index in range(n):
        image, mask = data.pixels(index)
        assert (image.shape, image.dtype, mask.shape, mask.dtype) == ((32, 32, 3), np.uint8, (32, 32), bool)
        assert data.has_artifact[index] or not mask.any()
        image[:], mask[:] = 0, True  # copies
        example = data[index]
        torch.testing.assert_close(example.image, data.transform(data.pixels(index)[0]))
        np.testing.assert_array_equal(example.mask.numpy(), data.pixels(index)[1])
        facts = (int(data.labels[index]), bool(data.has_artifact[index]), int(data.ids[index]))
        assert (example.label, example.has_artifact, example.id) == facts
    for one, other in zip(next(iter(DataLoader(data, batch_size=3))), data.batch(range(3))):
        assert torch.equal(one, other)
    assert make().fingerprint == data.fingerprint
    assert len({data.fingerprint, *(make(**other).fingerprint for other in others)}) == 1 + len(others)


@pytest.mark.parametrize("name", VARIANTS)
def test_wrappers_keep_the_examples(name: str) -> None:
    data = VARIANTS[name][0]()
    for wrapped in (InMemory(data), Subset(data, np.arange(len(data)))):
        for fact in ("labels", "ids", "has_artifact", "is_relabelled", "class_names", "transform"):
            assert np.array_equal(getattr(wrapped, fact), getattr(data, fact))
        for one, other in zip(DataLoader(data, batch_size=4), DataLoader(wrapped, batch_size=4)):
            assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(one, other))
    assert InMemory(data).fingerprint == data.fingerprint
    assert InMemory(data).pixel_fingerprint == data.pixel_fingerprint


def test_masks_go_to_the_images_with_the_artifact_in_order() -> None:
    np.testing.assert_array_equal(WithMasks(HALF, MASKS).batch(np.flatnonzero(HALF.has_artifact)).mask.numpy(), MASKS)
    assert WithMasks(INSERTED, np.zeros((6, 32, 32), dtype=bool)).is_relabelled.sum() == 4


def test_several_artifacts_are_all_inserted_and_one_is_labelled() -> None:
    source = SyntheticLesions(80, size=32)
    alone = {label: WithArtifact(source, each, share=0.4, only_class=label) for label, each in ARTIFACTS.items()}
    for target in ARTIFACTS:
        data = several(source, target_class=target)
        assert np.array_equal(data.has_artifact, alone[target].has_artifact)
        assert (data.has_artifact.sum(), data.has_any.sum()) == (8, 16)
        for index, label in enumerate(source.labels):
            image, mask = data.pixels(index)
            expected = alone[label].pixels(index)[0] if label in alone else source.image(index)
            assert np.array_equal(image, expected)
            assert np.array_equal(mask, alone[target].pixels(index)[1])
    one, other = several(source), several(source, target_class=2)
    assert one.pixel_fingerprint == other.pixel_fingerprint != several(source, share=0.5).pixel_fingerprint


def test_pasted_pixels_are_a_donors() -> None:
    made = pasted()
    for index in range(len(made)):
        image, mask = made.pixels(index)
        (donor,) = np.flatnonzero(DONORS.ids == made.donor_ids[index])
        assert np.array_equal(mask, DONOR_MASKS[donor])
        assert np.array_equal(image[mask], DONORS.pixels(donor)[0][mask])
        assert np.array_equal(image[~mask], CLEAN.pixels(index)[0][~mask])
    assert len(set(made.donor_ids)) > 1
    alone = pasted(Subset(CLEAN, np.array([4])))  # the donor depends on seed and id only
    assert np.array_equal(alone.pixels(0)[0], made.pixels(4)[0])


class _Mixed(SyntheticLesions):
    def image(self, index: int) -> np.ndarray:
        return super().image(index)[: 16 - index]


_EMPTY = Subset(CLEAN, np.array([], dtype=int))


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: labelled(bits=BITS[:-1]), DataError, "12 images need as many artifact labels"),
        (lambda: labelled(bits=BITS.astype(int)), DataError, "artifact labels, not int"),
        (lambda: subset(HALF, range(10, 13)), DataError, "has 12 examples"),
        (lambda: InMemory(_EMPTY), DataError, "the dataset is empty"),
        (lambda: InMemory(WithArtifact(_Mixed(3, size=16), LSB(), share=0)), DataError, "Image 1 has shape"),
        (lambda: masked(masks=MASKS[1:]), DataError, "6 images have the artifact"),
        (lambda: masked(masks=MASKS[:, :16]), DataError, "must have one size"),
        (lambda: several(target_class=1), OptionError, r"Class 1 has no artifact; known: \[0, 2\]"),
        (lambda: pasted(DONORS, CLEAN), DataError, "pasted onto images without it"),
        (lambda: pasted(masks=DONOR_MASKS[:2]), DataError, "6 donors need as many masks"),
        (lambda: pasted(masks=np.zeros((6, 8, 8), dtype=bool)).pixels(0), DataError, "need one size"),
        (lambda: pasted(_EMPTY), DataError, "0 clean ones"),
        (lambda: pasted(seed=-1), OptionError, "seed must be"),
        (lambda: GREY(np.zeros((2, 5, 4, 1), dtype=np.uint8)), DataError, "1 channels cannot be normalised by 3"),
        (lambda: inserted(share=1.2), OptionError, "share is a part"),
        (lambda: inserted(only_class=None, flip_share=0.1), OptionError, "give only_class"),
        (lambda: inserted(only_class=4), OptionError, "There is no class 4.*3 ragged-variegated"),
        (lambda: inserted(elsewhere=0.6, flip_share=0.6), OptionError, "more than all"),
        (lambda: inserted(seed=-1), OptionError, "seed must be"),
    ],
)
def test_invalid_input_is_rejected(make: Callable[[], object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


def test_normalize_takes_batches() -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 5, 4, 3), dtype=np.uint8)
    batch = Normalize()(images)
    assert batch.shape == (2, 3, 5, 4)
    assert torch.equal(batch[1], Normalize()(images[1]))
    assert batch[1, 0, 4, 2].item() == pytest.approx((images[1, 4, 2, 0] / 255 - 0.485) / 0.229, abs=1e-6)
    assert Normalize(mean=(0.5,), std=(0.5,))(images[..., :1]).shape == (2, 1, 5, 4)
