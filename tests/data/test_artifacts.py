"""Artifacts: masks that tell the truth, formulas and slow references, the same artifact for the same image."""

from __future__ import annotations

import hashlib
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from hansfree.data import (
    LSB,
    Artifact,
    Brightness,
    FromFunction,
    Patch,
    Place,
    Plaster,
    SyntheticLesions,
    Timestamp,
)
from hansfree.data.artifacts import as_artifact
from hansfree.data.biased import insertable_artifacts
from hansfree.errors import DataError, OptionError, UnknownNameError

RNG = np.random.default_rng


def picture(height: int = 40, width: int = 48, channels: int = 3, seed: int = 0) -> np.ndarray:
    return RNG(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def grey(height: int, width: int, value: int = 100) -> np.ndarray:
    return np.full((height, width, 3), value, dtype=np.uint8)


def sticker(width: int = 8, height: int = 4) -> np.ndarray:
    """A red sticker, half transparent in its left half, inside a transparent border of 3 pixels."""
    pixels = np.zeros((height + 6, width + 6, 4), dtype=np.uint8)
    pixels[3:-3, 3:-3] = (255, 0, 0, 255)
    pixels[3:-3, 3 : 3 + width // 2, 3] = 128
    return pixels


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("patch") / "sticker.png"
    Image.fromarray(sticker()).save(path)
    return path


def test_members_are_the_four_biases_of_the_paper_and_a_users_own() -> None:
    localized = {name: member.localized for name, member in Artifact.members().items()}
    assert localized == {"timestamp": True, "brightness": False, "lsb": False, "plaster": True, "patch": True}
    assert list(Artifact.for_images()) == [name for name in localized if name != "plaster"]
    assert insertable_artifacts("lsb") == ("lsb", "timestamp", "brightness")
    with pytest.raises(UnknownNameError, match="Did you mean 'timestamp'"):
        Artifact.named("timestmp")


@pytest.mark.parametrize("name", list(Artifact.for_images()))
@given(
    height=st.integers(16, 90),
    width=st.integers(16, 90),
    channels=st.sampled_from([1, 3]),
    seed=st.integers(0, 99),
    size=st.floats(0.05, 1),
    angle=st.floats(0, 180),
)
@settings(max_examples=25)
def test_the_mask_has_every_changed_pixel(
    name: str, file: Path, height: int, width: int, channels: int, seed: int, size: float, angle: float
) -> None:
    artifact = Patch(file=file, size=size, angle=angle) if name == "patch" else Artifact.named(name)()
    image = picture(height, width, channels, seed)
    before = image.copy()
    stamped, mask = artifact.stamp(image, RNG(seed))
    assert np.array_equal(image, before)
    assert not np.shares_memory(stamped, image)
    assert (stamped.dtype, stamped.shape, mask.dtype, mask.shape) == (np.uint8, image.shape, bool, image.shape[:2])
    changed = (stamped != image).any(axis=2)
    assert mask.any()
    assert changed.any() or name == "patch"  # which may be transparent, or red on red
    assert not (changed & ~mask).any()
    assert artifact.localized or mask.all()
    assert np.array_equal(stamped, artifact.stamp(image, RNG(seed))[0])
    for wrong in (np.zeros((8, 8, 3)), np.zeros((8, 8), dtype=np.uint8), np.zeros((3, 8, 8), dtype=np.uint8)):
        with pytest.raises(DataError, match="uint8 image of shape"):
            artifact.stamp(wrong, RNG(0))


@pytest.mark.parametrize("artifact", [Timestamp(), Brightness(), LSB(), Plaster()], ids=lambda artifact: artifact.name)
def test_insert_depends_on_seed_and_sample_only(artifact: Artifact) -> None:
    source = SyntheticLesions(6, start=10)
    longer = SyntheticLesions(20)
    image, mask = artifact.insert(source, 2, seed=5)
    for index in (4, 0):
        artifact.insert(source, index, seed=5)
    assert not (image != source.image(2)).any(axis=2)[~mask].any()
    for again, again_mask in (artifact.insert(source, 2, seed=5), artifact.insert(longer, 12, seed=5)):
        assert np.array_equal(image, again)
        assert np.array_equal(mask, again_mask)


@pytest.mark.parametrize("size", [16, 64, 224, 1000])
def test_timestamp_is_bottom_right_readable_and_of_moderate_size(size: int) -> None:
    stamped, mask = Timestamp().stamp(grey(size, size, 128), RNG(0))
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    assert min(rows[-1], columns[-1]) > 0.85 * size - 1
    assert rows[0] > size / 4
    assert columns[0] > 0 or size == 16  # not cut off; at 16 px the outline fills the margin
    assert stamped.astype(int)[mask].mean(axis=1).min() < 60
    assert stamped[..., 0].max() > (200 if size >= 64 else 140)  # at 16 px the letters are thinner than a pixel


@given(alpha=st.floats(0.01, 1.0))
@settings(max_examples=20)
def test_brightness_is_the_papers_formula(alpha: float) -> None:
    values = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    for before, after in zip(values.ravel(), Brightness(alpha=alpha).stamp(values, RNG(0))[0].ravel()):
        assert after == int(min(255.0, (1 - alpha) * int(before) + alpha * 255))
    published = "77578c3ce234df59ce9f040aa248b3ec42ce1a0387a987ce7f9c5d20a8deaab9"  # by the paper's code, alpha = 0.3
    assert hashlib.sha256(Brightness().stamp(values, RNG(0))[0].tobytes()).hexdigest() == published


def lsb_reference(image: np.ndarray, bits: int, rng: np.random.Generator) -> np.ndarray:
    """Write the letters bit by bit, highest bit first, one plane after another."""
    per_plane = -(-image.size // 8)
    letters = rng.integers(ord("a"), ord("z") + 1, size=(bits, per_plane), dtype=np.uint8)
    values = [int(value) for value in image.ravel()]
    for plane in range(bits):
        stream = "".join(format(int(letter), "08b") for letter in letters[plane])
        for position in range(len(values)):
            values[position] &= ~(1 << plane)
            values[position] |= int(stream[position]) << plane
    return np.array(values, dtype=np.uint8).reshape(image.shape)


@pytest.mark.parametrize(("bits", "shape"), [(1, (16, 24, 3)), (3, (16, 24, 3)), (7, (5, 7, 1))])
def test_lsb_is_the_bit_stream_of_the_message(bits: int, shape: tuple[int, ...]) -> None:
    image = picture(*shape)
    stamped, _ = LSB(bits=bits).stamp(image, RNG(3))
    assert np.array_equal(stamped, lsb_reference(image, bits, RNG(3)))
    assert np.array_equal(stamped >> bits, image >> bits)


def test_plaster_needs_a_source_that_draws_it() -> None:
    with pytest.raises(DataError, match="object cannot draw a plaster"):
        Plaster().insert(object(), 0, seed=0)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="finished picture"):
        Plaster().stamp(picture(), RNG(0))


def darker(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (image * rng.uniform(0.4, 0.6)).astype(np.uint8)


def test_a_function_is_an_artifact() -> None:
    def dot(image: Image.Image, rng: np.random.Generator) -> tuple[Image.Image, np.ndarray]:
        image.putpixel((2, 1), (255, 0, 0))
        return image, np.indices((image.height, image.width)).sum(0) == 3

    image, artifact = grey(8, 8, 200), as_artifact(darker)
    changed, mask = artifact.stamp(image, RNG(0))
    assert np.array_equal(changed, darker(image, RNG(0)))
    assert mask.all()
    assert (image == 200).all()
    assert repr(artifact) == repr(FromFunction(darker)) != repr(FromFunction(lambda image, rng: 255 - image))
    changed, mask = FromFunction(dot).stamp(grey(4, 4, 0), RNG(0))  # of a PIL image, with its own mask
    assert (changed[1, 2].tolist(), mask.sum()) == ([255, 0, 0], 4)
    assert (artifact.localized, FromFunction(dot).localized) == (False, True)


@pytest.mark.parametrize(
    ("function", "fragment"),
    [
        (lambda image, rng: image[:2], "Return the same type and shape"),
        (lambda image, rng: image / 255, "float64"),
        (lambda: None, "TypeError"),
        (lambda image, rng: RNG().integers(256, size=image.shape, dtype=np.uint8), "each time"),
        (lambda image, rng: image, "changes nothing"),
    ],
)
def test_a_function_that_does_not_serve_is_refused(function: Callable[..., Any], fragment: str) -> None:
    with pytest.raises(OptionError, match=fragment):
        FromFunction(function)


def test_options_are_checked_and_in_the_repr(file: Path) -> None:
    nan = float("nan")
    for kind, option, values, words in (
        (Brightness, "alpha", (0, -0.1, 1.5, nan), "above 0 and up to 1"),
        (LSB, "bits", (0, 8, 2.5, True), "1 to 7"),
        (Patch, "size", (0, -1, 1.5, nan), "above 0 and up to 1"),
        (Patch, "angle", (-1, 181, nan), "0 to 180 degrees"),
        (Patch, "place", ("top-lft",), "Did you mean 'top-left'"),
        (Patch, "file", (None,), "A patch needs its picture"),
    ):
        for value in values:
            with pytest.raises(OptionError, match=words):
                kind(**{**({"file": file} if kind is Patch else {}), option: value})  # type: ignore[operator]
    assert LSB(bits=2) == LSB(bits=2) != LSB(bits=3)
    found = [repr(artifact) for artifact in (Timestamp(), Brightness(), LSB())]
    assert found == ["Timestamp()", "Brightness(alpha=0.3)", "LSB(bits=3)"]


def test_at_its_own_size_every_pixel_is_blended_by_its_alpha(file: Path) -> None:
    image = picture(16, 32)
    stamped, mask = Patch(file=file, size=0.5, place="top-left").stamp(image, RNG(0))
    expected, patch = image.astype(float), sticker()[3:-3, 3:-3].astype(float)
    for y in range(4):  # half of the shorter side is 8 pixels, the sticker's own width
        for x in range(8):
            alpha = patch[y, x, 3] / 255
            expected[y, x] = expected[y, x] * (1 - alpha) + patch[y, x, :3] * alpha
    assert np.array_equal(stamped, np.rint(expected).astype(np.uint8))
    assert np.array_equal(mask, np.pad(np.ones((4, 8), dtype=bool), ((0, 12), (0, 24))))


@pytest.mark.parametrize(
    ("place", "start"), [("top-left", [0, 0]), ("right", [6, 24]), ("center", [6, 12]), ("bottom", [12, 12])]
)
def test_it_stands_where_it_should(file: Path, place: Place, start: list[int]) -> None:
    _, mask = Patch(file=file, size=0.5, place=place).stamp(grey(16, 32), RNG(0))
    assert np.argwhere(mask).min(axis=0).tolist() == start
    assert mask.sum() == 32


STARTS = {(y, x) for y in range(13) for x in range(9)}  # of a patch of 8 x 4 pixels in 16 x 16


@pytest.mark.parametrize(
    ("place", "starts"),
    [
        ("random", STARTS),
        ("corners", {(0, 0), (0, 8), (12, 0), (12, 8)}),
        ("edges", {(y, x) for y, x in STARTS if y in (0, 12) or x in (0, 8)}),
    ],
)
def test_a_random_place_is_everywhere_that_it_fits(file: Path, place: Place, starts: set[tuple[int, int]]) -> None:
    patch = Patch(file=file, size=0.5, place=place)
    masks = [patch.stamp(grey(16, 16), RNG(seed))[1] for seed in range(1000)]
    assert {tuple(np.argwhere(mask).min(axis=0).tolist()) for mask in masks} == starts
    assert {int(mask.sum()) for mask in masks} == {32}  # never cut off


def test_a_patch_that_would_vanish_is_an_error(tmp_path: Path) -> None:
    pixels = np.zeros((400, 400, 4), dtype=np.uint8)
    pixels[0, 0] = pixels[-1, -1] = 255  # two dots
    Image.fromarray(pixels).save(tmp_path / "dots.png")
    with pytest.raises(DataError, match=r"dots\.png leaves no trace at 0\.1 of an image of 30 x 20 pixels"):
        Patch(file=tmp_path / "dots.png", size=0.1).stamp(grey(20, 30), RNG(0))


def test_a_patch_is_known_by_its_content_and_options_but_not_by_its_path(file: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copy(file, tmp_path / "other.png"))
    first, same = Patch(file=file), Patch(file=moved)
    assert (same, repr(same), hash(same)) == (first, repr(first), hash(first))
    assert repr(Patch(file=file, size=1, angle=0)) == repr(Patch(file=file, size=1.0, angle=0.0))
    before, _ = same.stamp(grey(32, 32), RNG(0))
    Image.fromarray(255 - sticker()).save(moved)
    others = [Patch(file=moved), Patch(file=file, size=0.3), Patch(file=file, place="top"), Patch(file=file, angle=5)]
    assert len({repr(one) for one in (first, *others)}) == 5
    moved.unlink()
    again = pickle.loads(pickle.dumps(same))  # workers of a loader get a pickle
    assert np.array_equal(again.stamp(grey(32, 32), RNG(0))[0], before)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (Image.new("RGB", (4, 4)), "has no transparency"),
        (Image.new("RGBA", (4, 4)), "is fully transparent"),
        (b"a sticker", "is not a readable image"),
        (None, "is missing"),
    ],
)
def test_a_file_that_is_no_patch_is_one_sentence_with_its_path(tmp_path: Path, content: Any, sentence: str) -> None:
    path = tmp_path / "patch.png"
    if isinstance(content, Image.Image):
        content.save(path)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=rf"patch\.png {sentence}"):
        Patch(file=path)
