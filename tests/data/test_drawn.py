"""Drawn lesions: reproducible, balanced, and their classes are what they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansfree.data import SyntheticLesions, lesions
from hansfree.errors import DataError, OptionError


def test_an_image_depends_on_seed_and_id_only() -> None:
    source, shifted = SyntheticLesions(20, seed=3), SyntheticLesions(9, seed=3, start=11)
    images = [source.image(index) for index in range(20)]
    assert np.array_equal(shifted.ids, np.arange(11, 20))
    assert np.array_equal(shifted.labels, source.labels[11:])
    for index in reversed(range(9)):
        assert np.array_equal(shifted.image(index), images[11 + index])
    others = [SyntheticLesions(20, start=20), SyntheticLesions(20, seed=1)]
    assert len({each.image(index).tobytes() for each in (source, *others) for index in range(20)}) == 60


@pytest.mark.parametrize("classes", [2, 4, 7, 12])
def test_every_run_of_ids_holds_each_class_once(classes: int) -> None:
    runs = SyntheticLesions(classes * 50, classes=classes, seed=1).labels.reshape(50, classes)
    assert (np.sort(runs, axis=1) == np.arange(classes)).all()
    assert len({tuple(run) for run in runs.tolist()}) > 1


def test_options_and_fingerprint() -> None:
    changes = [{}, {"n": 11}, {"size": 32}, {"seed": 1}, {"start": 4}, {"classes": 5}]
    assert len({SyntheticLesions(**{"n": 10, **change}).fingerprint for change in changes}) == len(changes)
    for option in ({"n": 0}, {"size": 15}, {"classes": 1}, {"classes": 13}, {"seed": -1}, {"start": -1}):
        with pytest.raises(OptionError, match="SyntheticLesions"):
            SyntheticLesions(**{"n": 10, **option})
    for index in (3, -4):
        with pytest.raises(DataError, match=f"no image {index}"):
            SyntheticLesions(3).image(index)


def lesion_mask(source: SyntheticLesions, index: int) -> np.ndarray:
    """Return where the lesion is, bool (size, size)."""
    rng, irregularity, _ = source._begin(index)
    return lesions.depth_inside(lesions.draw_shape(rng, irregularity), source.size) > 0


@given(size=st.integers(16, 150), classes=st.integers(2, 12), seed=st.integers(0, 2**31), index=st.integers(0, 29))
@settings(max_examples=25)
def test_any_size_and_number_of_classes(size: int, classes: int, seed: int, index: int) -> None:
    source = SyntheticLesions(30, size=size, classes=classes, seed=seed)
    image, mask = source.render(index, plaster=True)
    assert (image.shape, image.dtype) == ((size, size, 3), np.uint8)
    assert mask.any()
    assert not source.render(index)[1].any()
    lesion = lesion_mask(source, index)
    assert 0.05 < lesion.mean() < 0.6
    assert (lesion & mask).sum() < 0.25 * lesion.sum()
    assert len(source.class_names) == len(set(source.class_names)) == classes


def test_a_plaster_never_hides_much_of_the_lesion() -> None:
    source = SyntheticLesions(300, size=32, seed=5)
    for index in range(len(source)):
        mask, lesion = source.render(index, plaster=True)[1], lesion_mask(source, index)
        assert (mask & lesion).sum() <= 0.1 * lesion.sum()
        assert 0.02 < mask.mean() < 0.3


def test_classes_differ_in_border_and_colour_and_overlap() -> None:
    source = SyntheticLesions(200, size=64)
    rough, varied = np.empty(200), np.empty(200)
    for index in range(200):
        lesion = lesion_mask(source, index)
        border = (lesion[1:] != lesion[:-1]).sum() + (lesion[:, 1:] != lesion[:, :-1]).sum()
        rough[index] = border**2 / lesion.sum()
        varied[index] = source.image(index)[lesion].astype(float).std(axis=0).mean()
    ragged, variegated = source.labels >= 2, source.labels % 2 == 1
    for measure, high in ((rough, ragged), (varied, variegated)):
        assert measure[high].mean() > measure[~high].mean() + measure[~high].std()
        assert measure[high].min() < measure[~high].max()  # graded, not two worlds
    assert source.class_names == ("smooth-even", "smooth-variegated", "ragged-even", "ragged-variegated")


def test_border_reference() -> None:
    """Walk from the centre along each pixel's direction, as the definition says."""
    shape = lesions.draw_shape(np.random.default_rng(1), 1.0)
    depth = lesions.depth_inside(shape, 24)
    for row in range(24):
        for column in range(24):
            dx = (2 * column + 1) / 24 - 1 - shape.x
            dy = (2 * row + 1) / 24 - 1 - shape.y
            along = (np.cos(shape.turn) * dx + np.sin(shape.turn) * dy) / shape.aspect**0.5
            across = (np.cos(shape.turn) * dy - np.sin(shape.turn) * dx) * shape.aspect**0.5
            angles = np.arange(lesions.ANGLES + 1) * 2 * np.pi / lesions.ANGLES
            reach = np.interp(np.arctan2(across, along) % (2 * np.pi), angles, np.append(shape.reach, shape.reach[0]))
            assert depth[row, column] == pytest.approx(1 - np.hypot(along, across) / reach, abs=1e-4)
