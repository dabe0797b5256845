"""Skin with printed text: reproducible, balanced, and text is exactly where a class needs it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansfree.data import lesions
from hansfree.data.printed import KINDS, PrintedSkin, print_text
from hansfree.errors import DataError, OptionError

CLASSES = len(PrintedSkin.class_names)
BARE = PrintedSkin.class_names.index("bare")


def test_an_image_depends_on_seed_and_id_only():
    forward = PrintedSkin(20, seed=3)
    images = [forward.image(index) for index in range(20)]
    backward = PrintedSkin(20, seed=3)
    for index in reversed(range(20)):
        assert np.array_equal(backward.image(index), images[index])
    shifted = PrintedSkin(9, seed=3, start=11)
    assert np.array_equal(shifted.ids, np.arange(11, 20))
    assert np.array_equal(shifted.labels, forward.labels[11:])
    for index in range(9):
        assert np.array_equal(shifted.image(index), images[11 + index])
    assert np.array_equal(forward.image(-1), images[-1])


def test_no_two_images_are_the_same():
    sources = [PrintedSkin(36), PrintedSkin(36, start=36), PrintedSkin(36, seed=1)]
    images = {source.image(index).tobytes() for source in sources for index in range(36)}
    assert len(images) == 3 * 36


def test_every_run_of_ids_holds_each_class_once():
    labels = PrintedSkin(CLASSES * 30, seed=1).labels
    assert labels.dtype == np.int64
    runs = labels.reshape(30, CLASSES)
    assert (np.sort(runs, axis=1) == np.arange(CLASSES)).all()
    assert len({tuple(run) for run in runs.tolist()}) > 1


def test_the_classes_are_lesions_bare_skin_and_text():
    names = PrintedSkin.class_names
    assert len(set(names)) == CLASSES >= 8
    assert [names[label] for label in PrintedSkin.text_classes] == ["number", "clock", "caption", "list"]
    assert names[BARE + 1 :] == tuple(names[label] for label in PrintedSkin.text_classes)
    assert names[:KINDS] == ("smooth-even", "smooth-variegated", "ragged-even", "ragged-variegated")


def test_a_lesion_is_of_the_kind_that_its_class_says():
    """The sources of lesions know their kind; the drawing must pick that one out of the run that an id owns."""
    source = PrintedSkin(45, seed=2)
    lesions = source._lesions
    kinds = {lesions.image(row).tobytes(): int(lesions.labels[row]) for row in range(len(lesions))}
    plain = np.flatnonzero(source.labels < KINDS)
    assert [kinds[source.image(int(index)).tobytes()] for index in plain] == source.labels[plain].tolist()


def test_text_is_in_the_text_classes_only():
    source = PrintedSkin(90)
    has_text = np.array([source.render(index)[1].any() for index in range(90)])
    assert np.array_equal(has_text, np.isin(source.labels, source.text_classes))


def test_without_its_text_a_picture_is_bare_skin():
    source, bare = PrintedSkin(45), PrintedSkin(45)
    bare.labels = np.full(45, BARE)
    for index in np.flatnonzero(np.isin(source.labels, source.text_classes)):
        image, mask = source.render(int(index))
        assert np.array_equal(image[~mask], bare.image(int(index))[~mask])
        assert (image[mask] != bare.image(int(index))[mask]).any(axis=1).all()


def test_bare_skin_has_no_dark_middle():
    source = PrintedSkin(180, size=32)
    x, y = lesions.coordinates(32)
    middle, around = np.hypot(x, y) < 0.3, np.hypot(x, y) > 0.9
    contrast = np.array([source.image(i)[around].mean() - source.image(i)[middle].mean() for i in range(180)])
    assert contrast[source.labels < KINDS].mean() > 30
    assert abs(contrast[source.labels == BARE].mean()) < 15


def test_kinds_of_text_differ_in_extent():
    source = PrintedSkin(270)
    extents = {label: [] for label in source.text_classes}
    for index in np.flatnonzero(np.isin(source.labels, source.text_classes)):
        rows, columns = np.nonzero(source.render(int(index))[1])
        extents[int(source.labels[index])].append((np.ptp(columns) + 1, np.ptp(rows) + 1))
    width, height = ({n: np.mean([e[axis] for e in extents[n]]) for n in extents} for axis in (0, 1))
    number, clock, caption, lines = source.text_classes
    assert width[caption] > 1.2 * max(width[number], width[clock], width[lines])
    assert height[lines] > 1.6 * max(height[number], height[clock], height[caption])
    assert abs(width[number] - width[clock]) < 0.2 * width[number]  # these two have to be read


def test_text_is_at_both_edges_and_in_several_inks():
    source = PrintedSkin(180)
    tops, inks = [], set()
    for index in np.flatnonzero(np.isin(source.labels, source.text_classes)):
        image, mask = source.render(int(index))
        tops.append(np.nonzero(mask)[0].mean() / 64)
        letters = image[mask].astype(int)
        inks.add(tuple(letters[letters.max(axis=1).argmax()] // 64))
    assert 0.3 < np.mean(np.array(tops) < 0.5) < 0.7
    assert len(inks) >= 3


@given(
    size=st.integers(32, 230),
    text=st.text("ABCMWI0123456789:", min_size=1, max_size=10).map(lambda t: t.replace("I", "\n", 1).strip() or "0"),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=40, deadline=None)
def test_text_of_any_size_stays_inside(size, text, seed):
    image = np.full((size, size, 3), 128, dtype=np.uint8)
    printed, mask = print_text(image, text, np.random.default_rng(seed))
    assert printed.shape == image.shape
    assert printed.dtype == np.uint8
    assert (image == 128).all()
    assert mask.any()
    assert not mask[0].any()
    assert not mask[-1].any()
    # Hinted letters can come out wider than they were measured: then, and only then, they touch a side.
    fits = mask.any(axis=0).sum() <= size - 2 * max(2, round(0.03 * size))
    assert not fits or not mask[:, [0, -1]].any()
    assert printed[mask].max() > 135  # ink, on a ground of 128; letters of two pixels are pale
    assert printed[mask].min() < 60  # outline


def test_fingerprint_tells_all_parameters():
    options = [{}, {"size": 32}, {"seed": 1}, {"start": 4}]
    prints = {PrintedSkin(10, **option).fingerprint for option in options} | {PrintedSkin(11).fingerprint}
    assert len(prints) == 5
    assert PrintedSkin(10).fingerprint in prints


@pytest.mark.parametrize("option", [{"size": 31}, {"seed": -1}, {"start": -1}])
def test_impossible_options_are_refused(option):
    with pytest.raises(OptionError, match="PrintedSkin needs"):
        PrintedSkin(10, **option)


def test_an_empty_set_and_a_missing_image_are_refused():
    with pytest.raises(OptionError, match="n of at least 1"):
        PrintedSkin(0)
    for index in (3, -4):
        with pytest.raises(DataError, match=f"no image {index}"):
            PrintedSkin(3).image(index)
