"""Printed skin: reproducible, and its classes are what they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansfree.errors import OptionError
from hansfree_paper.printed import KINDS, PrintedSkin, print_text

BARE = PrintedSkin.class_names.index("bare")


def test_an_image_depends_on_seed_and_id_only() -> None:
    source, shifted = PrintedSkin(20, seed=3), PrintedSkin(9, seed=3, start=11)
    for index in reversed(range(9)):
        assert np.array_equal(shifted.image(index), source.image(11 + index))
    changes = [{}, {"n": 11}, {"size": 32}, {"seed": 1}, {"start": 4}]
    assert len({PrintedSkin(**{"n": 10, **change}).fingerprint for change in changes}) == len(changes)
    with pytest.raises(OptionError, match="PrintedSkin needs size of at least 32"):
        PrintedSkin(10, size=31)


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
