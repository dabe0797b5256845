"""Drawn lesions and printed skin: reproducible, balanced, and their classes are what they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansfree.data import PrintedSkin, SyntheticLesions, lesions
from hansfree.data.printed import KINDS, print_text
from hansfree.errors import DataError, OptionError

SOURCES = [SyntheticLesions, PrintedSkin]
BARE = PrintedSkin.class_names.index("bare")


@pytest.mark.parametrize("kind", SOURCES)
def test_an_image_depends_on_seed_and_id_only(kind: type) -> None:
    forward, backward = kind(20, seed=3), kind(20, seed=3)
    images = [forward.image(index) for index in range(20)]
    for index in reversed(range(20)):
        assert np.array_equal(backward.image(index), images[index])
    shifted = kind(9, seed=3, start=11)
    assert np.array_equal(shifted.ids, np.arange(11, 20))
    assert np.array_equal(shifted.labels, forward.labels[11:])
    for index in range(9):
        assert np.array_equal(shifted.image(index), images[11 + index])
    assert np.array_equal(forward.image(-1), images[-1])
    others = [kind(20, start=20), kind(20, seed=1)]
    assert len({source.image(index).tobytes() for source in (forward, *others) for index in range(20)}) == 60


@pytest.mark.parametrize("classes", [2, 4, 7, 12, None])
def test_every_run_of_ids_holds_each_class_once(classes: int | None) -> None:
    n = classes or len(PrintedSkin.class_names)
    labels = SyntheticLesions(n * 50, classes=n, seed=1).labels if classes else PrintedSkin(n * 50, seed=1).labels
    assert labels.dtype == np.int64
    runs = labels.reshape(50, n)
    assert (np.sort(runs, axis=1) == np.arange(n)).all()
    assert len({tuple(run) for run in runs.tolist()}) > 1


@pytest.mark.parametrize(
    ("kind", "invalid"),
    [
        (SyntheticLesions, [{"size": 15}, {"classes": 1}, {"classes": 13}, {"seed": -1}, {"start": -1}]),
        (PrintedSkin, [{"size": 31}, {"seed": -1}, {"start": -1}]),
    ],
)
def test_options_and_fingerprint(kind: type, invalid: list[dict[str, int]]) -> None:
    changes = [{}, {"n": 11}, {"size": 32}, {"seed": 1}, {"start": 4}, {"classes": 5}]
    changes = [change for change in changes if kind is SyntheticLesions or "classes" not in change]
    prints = {kind(**{"n": 10, **change}).fingerprint for change in changes}
    assert len(prints) == len(changes)
    assert kind(10).fingerprint in prints
    for option in invalid:
        with pytest.raises(OptionError, match=kind.__name__):
            kind(10, **option)
    with pytest.raises(OptionError, match="n of at least 1"):
        kind(0)
    for index in (3, -4):
        with pytest.raises(DataError, match=f"no image {index}"):
            kind(3).image(index)


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


def test_smooth_noise_has_unit_variance() -> None:
    rng = np.random.default_rng(0)
    fields = np.stack([lesions.field(rng, 32, 6) for _ in range(400)])
    assert fields.var(axis=0).mean() == pytest.approx(1, abs=0.05)
    assert np.abs(np.diff(fields, axis=1)).mean() < 0.4


def test_printed_classes_are_lesions_bare_skin_and_text() -> None:
    names = PrintedSkin.class_names
    assert names[:KINDS] == ("smooth-even", "smooth-variegated", "ragged-even", "ragged-variegated")
    assert names[BARE:] == ("bare", "number", "clock", "caption", "list")
    source = PrintedSkin(90, seed=2)
    own = source._lesions  # the drawing must pick the right kind out of the run of lesions that an id owns
    kinds = {own.image(row).tobytes(): int(own.labels[row]) for row in range(len(own))}
    plain = np.flatnonzero(source.labels < KINDS)
    assert [kinds[source.image(int(index)).tobytes()] for index in plain] == source.labels[plain].tolist()
    has_text = np.array([source.render(index)[1].any() for index in range(90)])
    assert np.array_equal(has_text, np.isin(source.labels, source.text_classes))


def test_without_its_text_a_picture_is_bare_skin() -> None:
    source, bare = PrintedSkin(45), PrintedSkin(45)
    bare.labels = np.full(45, BARE)
    for index in map(int, np.flatnonzero(np.isin(source.labels, source.text_classes))):
        image, mask = source.render(index)
        assert np.array_equal(image[~mask], bare.image(index)[~mask])
        assert (image[mask] != bare.image(index)[mask]).any(axis=1).all()


def test_kinds_of_text_differ_in_extent_edge_and_ink() -> None:
    source = PrintedSkin(270)
    extents: dict[int, list[tuple[int, int]]] = {label: [] for label in source.text_classes}
    tops, inks = [], set()
    for index in map(int, np.flatnonzero(np.isin(source.labels, source.text_classes))):
        image, mask = source.render(index)
        rows, columns = np.nonzero(mask)
        extents[int(source.labels[index])].append((np.ptp(columns) + 1, np.ptp(rows) + 1))
        tops.append(rows.mean() / 64)
        letters = image[mask].astype(int)
        inks.add(tuple(letters[letters.max(axis=1).argmax()] // 64))
    width, height = ({n: np.mean([e[axis] for e in extents[n]]) for n in extents} for axis in (0, 1))
    number, clock, caption, lines = source.text_classes
    assert width[caption] > 1.2 * max(width[number], width[clock], width[lines])
    assert height[lines] > 1.6 * max(height[number], height[clock], height[caption])
    assert abs(width[number] - width[clock]) < 0.2 * width[number]  # these two have to be read
    assert 0.3 < np.mean(np.array(tops) < 0.5) < 0.7
    assert len(inks) >= 3


@given(
    size=st.integers(32, 230),
    text=st.text("ABCMWI0123456789:", min_size=1, max_size=10).map(lambda t: t.replace("I", "\n", 1).strip() or "0"),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=40)
def test_text_of_any_size_stays_inside(size: int, text: str, seed: int) -> None:
    image = np.full((size, size, 3), 128, dtype=np.uint8)
    printed, mask = print_text(image, text, np.random.default_rng(seed))
    assert (printed.shape, printed.dtype) == (image.shape, np.uint8)
    assert (image == 128).all()
    assert mask.any()
    assert not mask[[0, -1]].any()
    # Hinted letters can come out wider than they were measured: then, and only then, they touch a side.
    fits = mask.any(axis=0).sum() <= size - 2 * max(2, round(0.03 * size))
    assert not fits or not mask[:, [0, -1]].any()
    assert printed[mask].max() > 135  # ink, on a ground of 128; letters of two pixels are pale
    assert printed[mask].min() < 60  # outline
