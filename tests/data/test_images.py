"""Image files: every format becomes a model's pixels, every bad file one sentence."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import v2

from hansfree.data.images import ImageFiles, check_images, decode, find_fault, to_rgb
from hansfree.errors import DataError, HansfreeError, OptionError

SIZE = 12


def pixels_of(path: Path, channels: int = 3, resize: str = "squash", size: int = SIZE) -> np.ndarray:
    return decode(path, size=size, resize=resize, channels=channels)  # type: ignore[arg-type]


def ramp(dtype: type = np.uint8, top: int = 255) -> np.ndarray:
    return np.linspace(0, top, SIZE * SIZE).reshape(SIZE, SIZE).round().astype(dtype)


GREY, DEEP = ramp(), ramp(np.uint16, 65535)
COLOURS = np.dstack([GREY, 255 - GREY, GREY // 2])


def smooth(width: int, height: int) -> np.ndarray:
    """An image without sharp edges, so that JPEG keeps it."""
    x, y = np.meshgrid(np.linspace(0, 200, width), np.linspace(0, 200, height))
    return np.stack([x, y, (x + y) / 2], axis=-1).astype(np.uint8)


def saved(path: Path, array: np.ndarray, **options: Any) -> Path:
    Image.fromarray(array).save(path, **options)
    return path


def source(*paths: Path | str, **options: Any) -> ImageFiles:
    return ImageFiles(paths, [0] * len(paths), **{"class_names": ("only",), "size": 16, **options})


BIG_ENDIAN = Image.frombytes("I;16B", (SIZE, SIZE), DEEP.astype(">u2").tobytes())
ONE_BIT = Image.fromarray(GREY).convert("1", dither=Image.Dither.NONE)


@pytest.mark.parametrize(
    ("name", "picture", "expected"),
    [
        ("rgb.png", Image.fromarray(COLOURS), COLOURS),
        ("grey.png", Image.fromarray(GREY), GREY),
        ("rgba.png", Image.fromarray(np.dstack([COLOURS, GREY])), COLOURS),  # alpha is dropped
        ("la.png", Image.fromarray(np.dstack([GREY, 255 - GREY])), GREY),
        ("deep.png", Image.fromarray(DEEP), np.rint(DEEP / 257)),
        ("deep.tif", Image.fromarray(DEEP), np.rint(DEEP / 257)),
        ("big endian.tif", BIG_ENDIAN, np.rint(DEEP / 257)),
        ("one bit.png", ONE_BIT, np.where(GREY < 128, 0, 255)),
        ("palette.gif", Image.fromarray(COLOURS).quantize(256), COLOURS),
        ("cmyk.tif", Image.fromarray(np.dstack([GREY] * 3)).convert("CMYK"), GREY),
    ],
)
def test_formats(tmp_path: Path, name: str, picture: Image.Image, expected: np.ndarray) -> None:
    picture.save(tmp_path / name)
    found = pixels_of(tmp_path / name)
    assert (found.shape, found.dtype) == ((SIZE, SIZE, 3), np.uint8)
    expected = expected if expected.ndim == 3 else np.dstack([expected] * 3)
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= (40 if name == "palette.gif" else 0)
    found[:] = 0  # writable
    assert pixels_of(tmp_path / name, 1).shape == (SIZE, SIZE, 1)


def test_details_of_formats(tmp_path: Path) -> None:
    Image.fromarray(COLOURS).quantize(8).save(tmp_path / "p.png", transparency=bytes([0, 128] * 4))
    assert pixels_of(tmp_path / "p.png").shape == (SIZE, SIZE, 3)  # without a warning
    pages = [Image.new("L", (4, 4), value) for value in (10, 200)]
    pages[0].save(tmp_path / "pages.tif", save_all=True, append_images=pages[1:])
    assert np.unique(pixels_of(tmp_path / "pages.tif")).tolist() == [10]
    exif = Image.Exif()
    exif[0x0112] = 6  # "rotate by 90 degrees", which torchvision ignores, too
    assert np.array_equal(pixels_of(saved(tmp_path / "turned.png", COLOURS, exif=exif)), COLOURS)
    assert np.array_equal(to_rgb(GREY[..., None]), np.dstack([GREY] * 3))
    assert to_rgb(COLOURS) is COLOURS


@pytest.mark.parametrize(("width", "height"), [(50, 37), (37, 50), (41, 41), (90, 31), (20, 24)])
def test_crop_is_torchvisions_to_the_pixel(tmp_path: Path, width: int, height: int) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    ours = pixels_of(saved(tmp_path / "a.png", picture), resize="crop", size=28)
    reference = v2.Compose([v2.Resize(32, antialias=True), v2.CenterCrop(28)])(Image.fromarray(picture))
    assert np.array_equal(ours, np.asarray(reference))


def test_images_of_extreme_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("L", (1_000_000, 1)).save(tmp_path / "line.png")
    with pytest.raises(DataError, match=r"line\.png .*1000000 x 1 pixels are too long and narrow"):
        pixels_of(tmp_path / "line.png", resize="crop", size=224)
    assert pixels_of(tmp_path / "line.png").shape == (SIZE, SIZE, 3)
    Image.new("L", (60, 60)).save(tmp_path / "big.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)
    assert find_fault(tmp_path / "big.png") is None  # only Pillow's warning
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(DataError, match=r"big\.png is too large: it has more than 2,000 pixels"):
        pixels_of(tmp_path / "big.png")


def test_ids_and_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    path = saved(tmp_path / "old" / "a.png", smooth(8, 8))
    os.utime(path, ns=(10**18, 10**18))
    some = source(path, path, ids=np.array([3, 9]))
    assert (some.ids.tolist(), some.id_range, source(path).id_range) == ([3, 9], range(10), range(1))

    def print_of(path: Path = path, label: int = 0, **options: Any) -> str:
        return ImageFiles([path], [label], **{"class_names": ("x", "y"), "size": 8, **options}).fingerprint

    first = print_of()
    changes: list[dict[str, Any]] = [{"label": 1}, {"size": 9}, {"resize": "crop"}, {"channels": 1}]
    changes += [{"ids": np.array([5])}, {"id_range": range(7)}, {"class_names": ("x", "z")}]
    assert len({first, *(print_of(**change) for change in changes)}) == 1 + len(changes)
    (tmp_path / "old").rename(tmp_path / "new")
    moved = tmp_path / "new" / "a.png"
    assert print_of(moved) == first  # a dataset can be moved
    os.utime(moved, ns=(10**18, 10**18 + 10**9))
    assert print_of(moved) != first
    odd = tmp_path / b"caf\xe9.png".decode("utf-8", "surrogateescape")
    with contextlib.suppress(OSError):  # some file systems have UTF-8 names only
        assert source(saved(odd, GREY)).fingerprint


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: source("a.png", resize="crops"), OptionError, "Did you mean 'crop'"),
        (lambda: source("a.png", size=0), OptionError, "1 to 16384 pixels, not 0"),
        (lambda: source("a.png", channels=2), OptionError, r"channels is 2\. Allowed: 1, 3"),
        (lambda: ImageFiles(["a", "b"], [0], class_names=("x",), size=4), DataError, "2 files need as many labels"),
        (lambda: ImageFiles(["a"], [1], class_names=("x",), size=4), DataError, "from 0 to 0, but there is 1"),
        (lambda: source("gone.png").image(0), DataError, r"gone\.png is missing"),
        (lambda: source("gone.png").fingerprint, DataError, r"gone\.png is missing"),
    ],
)
def test_invalid_input_is_rejected(make: Callable[[], object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Good and bad files."""
    jpg = saved(tmp_path / "good.jpg", smooth(64, 64)).read_bytes()
    png = saved(tmp_path / "good.png", smooth(64, 64)).read_bytes()
    saved(tmp_path / "other.bmp", smooth(8, 8))
    middle = len(png) // 2
    for name, content in {
        "appended.jpg": jpg + b"a camera's own bytes",
        "empty.jpg": b"",
        "text.jpg": b"<html>not found</html>" * 20,
        "cut.jpg": jpg[: len(jpg) * 2 // 3],
        "cut.png": png[: len(png) * 2 // 3],
        "unended.png": png[:-12],
        "flipped.png": png[:middle] + bytes([png[middle] ^ 255]) + png[middle + 1 :],
    }.items():
        (tmp_path / name).write_bytes(content)
    saved(tmp_path / "float.tif", np.zeros((4, 4), np.float32))
    saved(tmp_path / "int.tif", np.full((4, 4), 70_000, np.int32))
    (tmp_path / "folder.jpg").mkdir()
    return tmp_path


BAD = {
    "missing.jpg": "is missing",
    "empty.jpg": "is empty",
    "text.jpg": r"is not a readable image \(no known format\)",
    "cut.jpg": r"is not a readable image \(truncated\)",
    "cut.png": "is not a readable image",
    "unended.png": "is not a readable image",
    "flipped.png": r"is not a readable image \(damaged",
    "folder.jpg": "cannot be read",
    "float.tif": r"is not a readable image \(decimal values",
    "int.tif": r"is not a readable image \(more than 16 bits",
}


def test_files_are_checked(mixed: Path) -> None:
    for name, words in BAD.items():
        with pytest.raises(DataError, match=f"{name} {words}.*: restore the file, .*--skip-bad"):
            check_images([mixed / "good.jpg", mixed / name], skip_bad=False)
    for name in ("cut.jpg", "float.tif"):  # also where it breaks later
        with pytest.raises(DataError, match=f"{name} {BAD[name]}"):
            source(mixed / name).image(0)
    good = [mixed / name for name in ("good.jpg", "good.png", "other.bmp", "appended.jpg")]
    found, skipped = check_images([mixed / "missing.jpg", *good, mixed / "cut.png"], skip_bad=True)
    assert found.tolist() == [1, 2, 3, 4]
    assert [line.split(" ")[0] for line in skipped] == [str(mixed / name) for name in ("missing.jpg", "cut.png")]
    with pytest.raises(DataError, match=r"None of the 2 images can be used: .*empty\.jpg is empty\."):
        check_images([mixed / "empty.jpg", mixed / "cut.jpg"], skip_bad=True)


def encoded(form: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(COLOURS).save(buffer, form)
    return buffer.getvalue()


GOOD = {form: encoded(form) for form in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "PPM", "TGA", "WEBP", "ICO")}


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A file with some bytes changed, cut off or appended; or random bytes after a header."""
    good = draw(st.sampled_from(sorted(GOOD.values())))
    if draw(st.booleans()):
        return good[: draw(st.sampled_from([0, 20]))] + draw(st.binary(max_size=300))
    content = bytearray(good)
    for place, change in draw(st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), max_size=6)):
        content[place % len(content)] ^= change
    return bytes(content[: len(content) - draw(st.integers(0, 60))]) + draw(st.binary(max_size=20))


@given(content=damaged())
@settings(max_examples=250)
def test_any_file_is_pixels_or_an_error_of_ours(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Image, "MAX_IMAGE_PIXELS", 1_000_000)  # a header may promise gigabytes
        with contextlib.suppress(HansfreeError):
            check_images([path], skip_bad=False)
        for resize in ("squash", "crop"):
            with contextlib.suppress(HansfreeError):
                found = pixels_of(path, resize=resize)
                assert (found.shape, found.dtype) == ((SIZE, SIZE, 3), np.uint8)
