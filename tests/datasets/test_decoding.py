"""Every format that Pillow reads becomes the pixels of a model, or one sentence; damaged bytes never anything else."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from hansfree.datasets.images import ImageFiles, check_images, decode, find_fault, in_colour, read_table
from hansfree.errors import DataError, HansfreeError, OptionError

SIZE = 12


def pixels_of(path: Path, channels: int = 3, resize: str = "squash") -> np.ndarray:
    return decode(path, size=SIZE, resize=resize, channels=channels)  # type: ignore[arg-type]


def ramp(dtype: type = np.uint8, top: int = 255) -> np.ndarray:
    return np.linspace(0, top, SIZE * SIZE).reshape(SIZE, SIZE).round().astype(dtype)


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_sixteen_bits_are_scaled_to_eight_in_png_and_tiff(tmp_path: Path, name: str) -> None:
    Image.fromarray(ramp(np.uint16, 65535)).save(tmp_path / name)
    for channels in (1, 3):
        found = pixels_of(tmp_path / name, channels)
        assert found.shape == (SIZE, SIZE, channels)
        assert np.array_equal(found[..., 0], np.rint(ramp(np.uint16, 65535) / 257))


def test_big_endian_tiff_is_the_same(tmp_path: Path) -> None:
    little = Image.fromarray(ramp(np.uint16, 65535))
    Image.frombytes("I;16B", little.size, ramp(np.uint16, 65535).astype(">u2").tobytes()).save(tmp_path / "b.tif")
    little.save(tmp_path / "l.tif")
    with Image.open(tmp_path / "b.tif") as opened:
        assert opened.mode == "I;16B"
    assert np.array_equal(pixels_of(tmp_path / "b.tif"), pixels_of(tmp_path / "l.tif"))


def test_one_bit_palette_grey_with_alpha_and_cmyk(tmp_path: Path) -> None:
    grey = ramp()
    colours = Image.fromarray(np.dstack([grey, 255 - grey, grey // 2]))
    Image.fromarray(grey).convert("1", dither=Image.Dither.NONE).save(tmp_path / "1.png")
    assert np.array_equal(pixels_of(tmp_path / "1.png", 1)[..., 0], np.where(grey < 128, 0, 255))
    colours.quantize(256).save(tmp_path / "p.gif")
    assert np.abs(pixels_of(tmp_path / "p.gif").astype(int) - np.asarray(colours)).max() < 40
    Image.fromarray(np.dstack([grey, 255 - grey])).save(tmp_path / "la.png")
    assert np.array_equal(pixels_of(tmp_path / "la.png", 1)[..., 0], grey)  # alpha is dropped
    Image.fromarray(np.dstack([grey] * 3)).convert("CMYK").save(tmp_path / "c.tif")
    assert np.array_equal(pixels_of(tmp_path / "c.tif")[..., 0], grey)


def test_three_channels_become_one_by_brightness_and_grey_stays_exact(tmp_path: Path) -> None:
    Image.new("RGB", (5, 5), (255, 0, 0)).save(tmp_path / "red.png")
    assert np.unique(pixels_of(tmp_path / "red.png", 1)).tolist() == [76]
    Image.fromarray(ramp()).save(tmp_path / "g.png")
    assert np.array_equal(pixels_of(tmp_path / "g.png", 1)[..., 0], ramp())


def test_grey_is_shown_in_three_equal_channels() -> None:
    grey = np.arange(6, dtype=np.uint8).reshape(2, 3, 1)
    assert in_colour(grey).shape == (2, 3, 3)
    assert (in_colour(grey) == grey).all()
    assert in_colour(colour := np.zeros((2, 3, 3), dtype=np.uint8)) is colour


def test_of_several_pages_the_first_counts(tmp_path: Path) -> None:
    first, second = Image.new("L", (4, 4), 10), Image.new("L", (4, 4), 200)
    for name in ("pages.tif", "frames.gif"):
        first.save(tmp_path / name, save_all=True, append_images=[second])
        assert np.unique(pixels_of(tmp_path / name)).tolist() == [10]


def test_what_no_model_could_get_is_told_before_anything_starts(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((4, 4), np.float32)).save(tmp_path / "f.tif")
    Image.fromarray(np.full((4, 4), 70_000, np.int32)).save(tmp_path / "i.tif")
    assert find_fault(tmp_path / "f.tif") == "is not a readable image (decimal values instead of 8 or 16 bits)"
    assert find_fault(tmp_path / "i.tif") == "is not a readable image (more than 16 bits per value)"


def test_a_decompression_bomb_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("L", (60, 60)).save(tmp_path / "big.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)
    assert find_fault(tmp_path / "big.png") is None  # Pillow's warning at its limit is not for users
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert find_fault(tmp_path / "big.png") == "is too large: it has more than 2,000 pixels"
    with pytest.raises(DataError, match=r"big\.png is too large"):
        pixels_of(tmp_path / "big.png")


def test_a_picture_too_narrow_to_crop_is_a_sentence_and_not_all_memory(tmp_path: Path) -> None:
    Image.new("L", (1_000_000, 1)).save(tmp_path / "line.png")
    with pytest.raises(DataError, match=r"line\.png .*1000000 x 1 pixels are too long and narrow"):
        decode(tmp_path / "line.png", size=224, resize="crop", channels=3)
    assert pixels_of(tmp_path / "line.png").shape == (SIZE, SIZE, 3)


def test_one_channel_is_another_fingerprint_and_a_choice(tmp_path: Path) -> None:
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    given = {"class_names": ("x",), "size": 4}
    three, one = (ImageFiles([tmp_path / "a.png"], [0], channels=channels, **given) for channels in (3, 1))
    assert "channels" not in three.fingerprint  # caches made before there was a choice stay valid
    assert one.fingerprint.endswith(", channels=1)")
    assert (three.image(0).shape, one.image(0).shape) == ((4, 4, 3), (4, 4, 1))
    with pytest.raises(OptionError, match=r"channels is 2\. Allowed: 1, 3"):
        ImageFiles([tmp_path / "a.png"], [0], channels=2, **given)


def test_a_name_that_is_not_utf8_has_a_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / b"caf\xe9.png".decode("utf-8", "surrogateescape")
    try:
        Image.new("L", (4, 4)).save(path)
    except OSError:
        pytest.skip("this file system has UTF-8 names only")
    assert ImageFiles([path], [0], class_names=("x",), size=4).fingerprint


def encoded(form: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.dstack([ramp(), 255 - ramp(), ramp() // 2])).save(buffer, form)
    return buffer.getvalue()


GOOD = {form: encoded(form) for form in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "PPM", "TGA", "WEBP", "ICO")}
CHANGES = st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), max_size=6)


@given(form=st.sampled_from(sorted(GOOD)), changes=CHANGES, cut=st.integers(0, 60), more=st.binary(max_size=20))
@settings(max_examples=300, deadline=None)
def test_mutated_files_are_pixels_or_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, form: str, changes: list[tuple[int, int]], cut: int, more: bytes
) -> None:
    content = bytearray(GOOD[form])
    for place, change in changes:
        content[place % len(content)] ^= change
    check(tmp_path_factory, bytes(content[: len(content) - cut]) + more)


@given(content=st.binary(max_size=300), head=st.sampled_from([b"", *(good[:20] for good in GOOD.values())]))
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_pixels_or_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, head: bytes
) -> None:
    check(tmp_path_factory, head + content)


def check(factory: pytest.TempPathFactory, content: bytes) -> None:
    path = factory.getbasetemp() / "fuzzed"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Image, "MAX_IMAGE_PIXELS", 1_000_000)  # a header may promise gigabytes
        with contextlib.suppress(HansfreeError):
            check_images([path], skip_bad=False)
        for resize in ("squash", "crop"):
            with contextlib.suppress(HansfreeError):
                found = pixels_of(path, resize=resize)
                assert (found.shape, found.dtype) == ((SIZE, SIZE, 3), np.uint8)


@given(content=st.binary(max_size=200) | st.text(alphabet='image,label"\r\n\t 01;\0\ufeffé', max_size=80))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_table_or_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, content: bytes | str
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with contextlib.suppress(HansfreeError):
        rows = read_table(path, ("image",))
        assert rows
        assert all("image" in row and list(row) == list(rows[0]) for row in rows)


def test_a_column_that_stands_twice_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("image,label,label\na,x,y\n")
    with pytest.raises(DataError, match=r"t\.csv has the column 'label' twice"):
        read_table(tmp_path / "t.csv", ("image",))
