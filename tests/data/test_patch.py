"""A patch of the user: compared with a slow reference, identified by its content, rejected in one sentence."""

from __future__ import annotations

import contextlib
import copy
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from hansfree.data.artifacts import Artifact, Patch, Place
from hansfree.data.biased import insertable_artifacts
from hansfree.errors import DataError, HansfreeError, OptionError


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


def grey(height: int, width: int, channels: int = 3, value: int = 100) -> np.ndarray:
    return np.full((height, width, channels), value, dtype=np.uint8)


def test_at_its_own_size_every_pixel_is_blended_by_its_alpha(file: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (16, 32, 3), dtype=np.uint8)
    stamped, mask = Patch(file=file, size=0.5, place="top-left").stamp(image, np.random.default_rng(0))
    expected, patch = image.astype(float), sticker()[3:-3, 3:-3].astype(float)
    for y in range(4):  # half of the shorter side is 8 pixels, the sticker's own width
        for x in range(8):
            alpha = patch[y, x, 3] / 255
            expected[y, x] = expected[y, x] * (1 - alpha) + patch[y, x, :3] * alpha
    assert np.array_equal(stamped, np.rint(expected).astype(np.uint8))
    assert np.array_equal(mask, np.pad(np.ones((4, 8), dtype=bool), ((0, 12), (0, 24))))


@pytest.mark.parametrize(
    ("place", "rows", "columns"),
    [
        ("top-left", 0, 0),
        ("top", 0, 12),
        ("top-right", 0, 24),
        ("left", 6, 0),
        ("center", 6, 12),
        ("right", 6, 24),
        ("bottom-left", 12, 0),
        ("bottom", 12, 12),
        ("bottom-right", 12, 24),
    ],
)
def test_it_stands_where_it_should(file: Path, place: Place, rows: int, columns: int) -> None:
    _, mask = Patch(file=file, size=0.5, place=place).stamp(grey(16, 32), np.random.default_rng(0))
    assert np.argwhere(mask).min(axis=0).tolist() == [rows, columns]
    assert mask.sum() == 32


ROWS, COLUMNS = range(13), range(9)  # where a patch of 8 x 4 pixels can begin in 16 x 16


@pytest.mark.parametrize(
    ("place", "starts"),
    [
        ("random", {(y, x) for y in ROWS for x in COLUMNS}),
        ("corners", {(0, 0), (0, 8), (12, 0), (12, 8)}),
        ("edges", {(y, x) for y in ROWS for x in COLUMNS if y in (0, 12) or x in (0, 8)}),
    ],
)
def test_a_random_place_is_everywhere_that_it_fits(file: Path, place: Place, starts: set[tuple[int, int]]) -> None:
    patch, found = Patch(file=file, size=0.5, place=place), set()
    for seed in range(1000):
        _, mask = patch.stamp(grey(16, 16), np.random.default_rng(seed))
        assert mask.sum() == 32  # never cut off
        found.add(tuple(np.argwhere(mask).min(axis=0).tolist()))
    assert found == starts


def test_it_turns_by_no_more_than_its_angle(file: Path) -> None:
    upright = Patch(file=file, size=0.5, place="center").stamp(grey(64, 64), np.random.default_rng(0))[1]
    turned = [
        Patch(file=file, size=0.5, place="center", angle=180.0).stamp(grey(64, 64), np.random.default_rng(seed))[1]
        for seed in range(20)
    ]
    heights = [np.ptp(np.argwhere(mask)[:, 0]) for mask in turned]
    assert max(heights) > 28 > 20 > min(heights)  # the 32 x 16 sticker stands and lies
    slightly = Patch(file=file, size=0.5, place="center", angle=2.0)
    for seed in range(20):
        mask = slightly.stamp(grey(64, 64), np.random.default_rng(seed))[1]
        assert np.ptp(np.argwhere(mask)[:, 0]) - np.ptp(np.argwhere(upright)[:, 0]) <= 4


def test_edges_do_not_darken_when_it_shrinks(tmp_path: Path) -> None:
    pixels = np.zeros((60, 60, 4), dtype=np.uint8)  # transparent black around a white disc
    y, x = np.mgrid[:60, :60]
    pixels[(y - 30) ** 2 + (x - 30) ** 2 < 625] = 255
    Image.fromarray(pixels).save(tmp_path / "disc.png")
    stamped, mask = Patch(file=tmp_path / "disc.png", size=0.5, angle=30.0).stamp(
        grey(32, 32, value=200), np.random.default_rng(0)
    )
    assert mask.any()
    assert stamped.min() == 200  # white on light grey: nothing between is darker than both


@given(
    height=st.integers(1, 70),
    width=st.integers(1, 70),
    channels=st.sampled_from([1, 3]),
    size=st.floats(0.05, 1),
    angle=st.floats(0, 180),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_the_mask_tells_every_changed_pixel(
    file: Path, height: int, width: int, channels: int, size: float, angle: float, seed: int
) -> None:
    image = np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)
    before, patch = image.copy(), Patch(file=file, size=size, angle=angle)
    stamped, mask = patch.stamp(image, np.random.default_rng(seed))
    assert np.array_equal(image, before)
    assert stamped.dtype == np.uint8
    assert stamped.shape == image.shape
    assert mask.any()
    assert not ((stamped != image).any(axis=2) & ~mask).any()
    again, _ = patch.stamp(image, np.random.default_rng(seed))
    assert np.array_equal(stamped, again)


def test_a_patch_that_would_vanish_is_an_error(tmp_path: Path) -> None:
    pixels = np.zeros((400, 400, 4), dtype=np.uint8)
    pixels[0, 0] = pixels[-1, -1] = 255  # two dots
    Image.fromarray(pixels).save(tmp_path / "dots.png")
    with pytest.raises(DataError, match=r"dots\.png leaves no trace at 0\.1 of an image of 30 x 20 pixels"):
        Patch(file=tmp_path / "dots.png", size=0.1).stamp(grey(20, 30), np.random.default_rng(0))


def test_it_is_known_by_its_content_and_options_but_not_by_its_path(file: Path, tmp_path: Path) -> None:
    moved = shutil.copy(file, tmp_path / "other.png")
    first = Patch(file=file)
    assert (Patch(file=moved), repr(Patch(file=moved)), hash(Patch(file=moved))) == (first, repr(first), hash(first))
    Image.fromarray(255 - sticker()).save(moved)
    others = [Patch(file=moved), Patch(file=file, size=0.3), Patch(file=file, place="top"), Patch(file=file, angle=5.0)]
    assert len({repr(one) for one in (first, *others)}) == 5
    assert first not in others
    assert "tmp" not in repr(first)


def test_an_edited_file_does_not_change_an_artifact_that_was_made(file: Path, tmp_path: Path) -> None:
    moved = shutil.copy(file, tmp_path / "other.png")
    patch = Patch(file=moved, place="center")
    before, _ = patch.stamp(grey(32, 32), np.random.default_rng(0))
    Path(moved).unlink()
    for one in (patch, copy.deepcopy(patch), pickle.loads(pickle.dumps(patch))):  # workers of a loader get a pickle
        assert np.array_equal(one.stamp(grey(32, 32), np.random.default_rng(0))[0], before)


def test_a_file_that_is_no_patch_is_one_sentence_with_its_path(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "opaque.png")
    Image.new("RGBA", (4, 4)).save(tmp_path / "nothing.png")
    (tmp_path / "text.png").write_text("a sticker")
    (tmp_path / "empty.png").write_bytes(b"")
    for name, sentence in {
        "opaque.png": "has no transparency",
        "nothing.png": "is fully transparent",
        "text.png": "is not a readable picture",
        "empty.png": "is not a readable picture",
        "gone.png": "is missing",
        ".": "cannot be read",
    }.items():
        with pytest.raises(DataError, match=sentence) as caught:
            Patch(file=tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)


def test_wrong_options_are_refused(file: Path) -> None:
    for size in (0, -1, 1.5, float("nan")):
        with pytest.raises(OptionError, match="above 0 and up to 1"):
            Patch(file=file, size=size)
    for angle in (-1, 181, float("nan")):
        with pytest.raises(OptionError, match="0 to 180 degrees"):
            Patch(file=file, angle=angle)
    with pytest.raises(OptionError, match="Did you mean 'top-left'"):
        Patch(file=file, place="top-lft")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="uint8 image of shape"):
        Patch(file=file).stamp(np.zeros((8, 8), np.uint8), np.random.default_rng(0))


def test_where_an_artifact_is_made_from_its_name_alone_a_patch_is_a_sentence_and_not_offered() -> None:
    with pytest.raises(OptionError, match="A patch needs its picture"):
        Artifact.named("patch")()
    assert insertable_artifacts("timestamp") == ("timestamp", "brightness", "lsb")


@given(cut=st.integers(0, 200), flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), max_size=4))
@settings(max_examples=80, deadline=None)
def test_a_damaged_file_is_an_error_of_ours_or_a_patch(cut: int, flips: list[tuple[int, int]], file: Path) -> None:
    content = bytearray(file.read_bytes())
    for place, change in flips:
        content[place % len(content)] ^= change
    damaged = file.with_name("damaged.png")
    damaged.write_bytes(bytes(content[: len(content) - cut]))
    with contextlib.suppress(HansfreeError):
        assert Patch(file=damaged).stamp(grey(24, 24), np.random.default_rng(0))[1].any()
