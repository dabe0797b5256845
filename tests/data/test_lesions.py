"""The drawn lesions: reproducible, of any size, and their classes are what they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansfree.data import lesions
from hansfree.data.lesions import SyntheticLesions
from hansfree.errors import DataError, OptionError


def lesion_mask(source: SyntheticLesions, index: int) -> np.ndarray:
    """Return where the lesion is, bool (size, size)."""
    rng, irregularity, _ = source._begin(index)
    return lesions.depth_inside(lesions.draw_shape(rng, irregularity), source.size) > 0


def test_an_image_depends_on_seed_and_id_only():
    forward = SyntheticLesions(12, seed=3)
    images = [forward.image(index) for index in range(12)]
    backward = SyntheticLesions(12, seed=3)
    for index in reversed(range(12)):
        assert np.array_equal(backward.image(index), images[index])
    shifted = SyntheticLesions(5, seed=3, start=7)
    assert np.array_equal(shifted.ids, np.arange(7, 12))
    assert np.array_equal(shifted.labels, forward.labels[7:])
    for index in range(5):
        assert np.array_equal(shifted.image(index), images[7 + index])


def test_seeds_and_ids_give_other_images():
    source, other = SyntheticLesions(3), SyntheticLesions(3, seed=1)
    assert not np.array_equal(source.image(0), source.image(1))
    assert not np.array_equal(source.image(0), other.image(0))


@given(size=st.integers(16, 150), classes=st.integers(2, 12), seed=st.integers(0, 2**31), index=st.integers(0, 29))
@settings(max_examples=25, deadline=None)
def test_any_size_and_number_of_classes(size, classes, seed, index):
    source = SyntheticLesions(30, size=size, classes=classes, seed=seed)
    image, mask = source.render(index, plaster=True)
    assert image.shape == (size, size, 3)
    assert image.dtype == np.uint8
    assert mask.any()
    lesion = lesion_mask(source, index)
    assert 0.05 < lesion.mean() < 0.6
    assert (lesion & mask).sum() < 0.25 * lesion.sum()
    assert len(source.class_names) == len(set(source.class_names)) == classes


def test_a_plaster_never_hides_much_of_the_lesion():
    source = SyntheticLesions(600, size=32, seed=5)
    hidden = []
    for index in range(len(source)):
        mask, lesion = source.render(index, plaster=True)[1], lesion_mask(source, index)
        hidden.append((mask & lesion).sum() / lesion.sum())
        assert 0.02 < mask.mean() < 0.3
    assert max(hidden) <= 0.1


@pytest.mark.parametrize("classes", [2, 4, 7, 12])
def test_every_run_of_ids_holds_each_class_once(classes):
    labels = SyntheticLesions(classes * 50, classes=classes, seed=1).labels
    assert labels.dtype == np.int64
    runs = labels.reshape(50, classes)
    assert (np.sort(runs, axis=1) == np.arange(classes)).all()
    assert len({tuple(run) for run in runs.tolist()}) > 1


def test_no_plaster_no_mask():
    assert not SyntheticLesions(1).render(0)[1].any()


def roughness(mask: np.ndarray) -> float:
    """Border length squared by area: the larger, the more ragged."""
    border = (mask[1:] != mask[:-1]).sum() + (mask[:, 1:] != mask[:, :-1]).sum()
    return border**2 / mask.sum()


def test_classes_differ_in_border_and_colour_and_overlap():
    source = SyntheticLesions(200, size=96)
    rough, varied = np.empty(200), np.empty(200)
    for index in range(200):
        lesion = lesion_mask(source, index)
        rough[index] = roughness(lesion)
        varied[index] = source.image(index)[lesion].astype(float).std(axis=0).mean()
    ragged, variegated = source.labels >= 2, source.labels % 2 == 1
    for measure, high in ((rough, ragged), (varied, variegated)):
        assert measure[high].mean() > measure[~high].mean() + measure[~high].std()
        assert measure[high].min() < measure[~high].max()  # graded, not two worlds
    assert source.class_names == ("smooth-even", "smooth-variegated", "ragged-even", "ragged-variegated")


def test_the_depth_says_where_the_lesion_is_drawn():
    """Without hairs and light: the skin is what it was outside, and darker inside."""
    rng = np.random.default_rng(0)
    shape = lesions.draw_shape(rng, 0.5)
    depth = lesions.depth_inside(shape, 64)
    skin = lesions.draw_skin(rng, 64)
    picture = lesions.draw_lesion(rng, skin, depth, variegation=0.0)
    changed = (picture != skin).any(axis=2)
    assert changed[depth > 0].all()
    assert not changed[depth < -0.15].any()
    assert picture[depth > 0.2].mean() < skin[depth > 0.2].mean() - 20


def test_border_reference():
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


def test_smooth_noise_has_unit_variance():
    rng = np.random.default_rng(0)
    fields = np.stack([lesions.field(rng, 32, 6) for _ in range(400)])
    assert fields.var(axis=0).mean() == pytest.approx(1, abs=0.05)
    assert np.abs(np.diff(fields, axis=1)).mean() < 0.4


def test_fingerprint_tells_all_parameters():
    options = [{}, {"size": 32}, {"classes": 5}, {"seed": 1}, {"start": 4}]
    prints = {SyntheticLesions(10, **option).fingerprint for option in options} | {SyntheticLesions(11).fingerprint}
    assert len(prints) == 6
    assert SyntheticLesions(10).fingerprint in prints


@pytest.mark.parametrize("option", [{"size": 15}, {"classes": 1}, {"classes": 13}, {"seed": -1}, {"start": -1}])
def test_impossible_options_are_refused(option):
    with pytest.raises(OptionError, match="SyntheticLesions"):
        SyntheticLesions(10, **option)


def test_an_empty_set_and_a_missing_image_are_refused():
    with pytest.raises(OptionError, match="n of at least 1"):
        SyntheticLesions(0)
    with pytest.raises(DataError, match="no image 3"):
        SyntheticLesions(3).image(3)
