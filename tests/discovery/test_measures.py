"""Properties of images and of their files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter

from hansfree.data.artifacts import Brightness, Timestamp
from hansfree.data.datasets import LabelledImages
from hansfree.data.lesions import SyntheticLesions
from hansfree.discovery.properties import (
    FILE_WORDS,
    PIXEL_WORDS,
    Measurements,
    measure_file,
    measure_images,
    measure_pixels,
)
from hansfree.errors import DataError


def flat(value: int = 100, *, size: int = 32, channels: int = 3) -> np.ndarray:
    return np.full((size, size, channels), value, dtype=np.uint8)


def test_a_flat_grey_image_has_brightness_alone() -> None:
    found = measure_pixels(flat(100))
    assert found["brightness"] == pytest.approx(100)
    assert all(value == pytest.approx(0, abs=1e-9) for name, value in found.items() if name != "brightness")
    assert set(found) == set(PIXEL_WORDS)
    assert measure_pixels(flat(100, channels=1)) == pytest.approx(found)


def test_each_change_moves_its_property() -> None:
    plain = measure_pixels(flat())
    image = flat()
    image[..., 0] = 160
    room = 100 + 0.299 * 60  # down to black, which is nearer than white
    assert measure_pixels(image)["red cast"] == pytest.approx(60 / room)
    assert measure_pixels(image)["saturation"] == pytest.approx(60 / room)
    image = flat()
    image[..., 2] = 160
    assert measure_pixels(image)["blue cast"] == pytest.approx(60 / (100 + 0.114 * 60))
    image = flat()
    for rows in (slice(4), slice(-4, None)):
        image[rows, :4] = image[rows, -4:] = 0
    assert measure_pixels(image)["corner brightness"] < -0.9
    image = flat()
    image[2:-2, 2:-2] = 200
    assert measure_pixels(image)["border brightness"] == pytest.approx(-100 / (255 - image.mean()))
    image = flat()
    image[28:, 28::2] = 255
    busy = measure_pixels(image)
    assert busy["corner detail"] > 0.7
    assert busy["white share"] == pytest.approx(8 / 1024)
    assert busy["sharpness"] > plain["sharpness"]
    assert measure_pixels(flat(0))["black share"] == 1
    image = flat()
    image[:4, :4] = (200, 20, 20)
    assert measure_pixels(image)["corner colour"] == pytest.approx(1.8, rel=0.02)


def test_a_blurred_image_is_less_sharp_and_a_stamped_one_busier() -> None:
    image = SyntheticLesions(1, size=64).image(0)
    blurred = np.asarray(Image.fromarray(image).filter(ImageFilter.GaussianBlur(2)))
    assert measure_pixels(blurred)["sharpness"] < measure_pixels(image)["sharpness"]
    stamped, _ = Timestamp().stamp(image, np.random.default_rng(0))
    assert measure_pixels(stamped)["corner detail"] > measure_pixels(image)["corner detail"]


def test_a_brighter_exposure_changes_the_brightness_alone() -> None:
    image = SyntheticLesions(1, size=64).image(0)
    before, after = measure_pixels(image), measure_pixels(Brightness().stamp(image, np.random.default_rng(0))[0])
    assert after.pop("brightness") > before.pop("brightness") + 20
    assert after == pytest.approx(before, rel=0.05, abs=0.01)


def test_a_file_tells_its_size_and_quality(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    found = {}
    for quality in (30, 60, 92):
        path = tmp_path / f"{quality}.jpg"
        Image.fromarray(noise).save(path, quality=quality)
        found[quality] = measure_file(str(path))
        assert found[quality]["jpeg quality"] == pytest.approx(quality, abs=3)
        assert found[quality]["bytes per pixel"] == path.stat().st_size / 2400
    assert set(found[30]) == set(FILE_WORDS)
    assert (found[30]["width"], found[30]["height"], found[30]["aspect"]) == (60, 40, 1.5)
    assert found[92]["bytes per pixel"] > found[30]["bytes per pixel"]
    Image.fromarray(noise).save(tmp_path / "a.png")
    lossless = measure_file(str(tmp_path / "a.png"))
    assert np.isnan([lossless["jpeg quality"], lossless["bytes per pixel"]]).all()


def test_a_file_that_is_no_image_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_text("no picture")
    with pytest.raises(DataError, match=r"a\.jpg cannot be read as an image"):
        measure_file(str(path))


def test_all_images_are_measured_in_order(tmp_path: Path) -> None:
    lesions = SyntheticLesions(4, size=32)
    images = LabelledImages(lesions, np.zeros(4, dtype=bool))
    without = measure_images(images)
    assert without.names == tuple(PIXEL_WORDS)
    for row in range(4):
        assert without.values[row] == pytest.approx(list(measure_pixels(lesions.image(row)).values()))
        Image.fromarray(lesions.image(row)).save(tmp_path / f"{row}.png")
    paths = [str(tmp_path / f"{row}.png") for row in range(4)]
    both = measure_images(images, paths=paths)
    assert both.names == (*PIXEL_WORDS, *FILE_WORDS)
    assert both.values[:, both.names.index("width")].tolist() == [32] * 4
    with pytest.raises(DataError, match="4 images need as many paths, not 1"):
        measure_images(images, paths=paths[:1])


def test_wrong_tables_are_refused() -> None:
    with pytest.raises(DataError, match="Did you mean 'brightness'"):
        Measurements(("brightnes",), np.zeros((2, 1)))
    with pytest.raises(DataError, match="2 properties need as many columns"):
        Measurements(("brightness", "contrast"), np.zeros((2, 1)))
    with pytest.raises(DataError, match="3 x 3 pixels or more"):
        measure_pixels(np.zeros((2, 9, 3), dtype=np.uint8))
