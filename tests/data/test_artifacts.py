"""Artifacts: masks that tell the truth, formulas of the paper, and the same artifact for the same sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from hansfree.data.artifacts import LSB, Artifact, Brightness, FromFunction, Plaster, Timestamp, as_artifact
from hansfree.data.lesions import SyntheticLesions
from hansfree.errors import DataError, OptionError, UnknownNameError

STAMPS = [Timestamp(), Brightness(), LSB()]


def picture(height: int = 40, width: int = 48, channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


class Photos:
    """A source with two finished pictures, which nothing can be drawn into."""

    labels = np.array([0, 1])
    ids = np.array([7, 3])
    class_names = ("a", "b")
    fingerprint = "photos"

    def __len__(self) -> int:
        return 2

    def image(self, index: int) -> np.ndarray:
        return picture(seed=index)


def test_members_are_the_four_biases_of_the_paper_and_a_users_own():
    assert list(Artifact.members()) == ["timestamp", "brightness", "lsb", "plaster", "patch"]
    assert {name: member.localized for name, member in Artifact.members().items()} == {
        "timestamp": True,
        "brightness": False,
        "lsb": False,
        "plaster": True,
        "patch": True,
    }
    assert [name for name, member in Artifact.members().items() if member.needs_file] == ["patch"]
    with pytest.raises(UnknownNameError, match="Did you mean 'timestamp'"):
        Artifact.named("timestmp")


@pytest.mark.parametrize("artifact", STAMPS, ids=lambda artifact: artifact.name)
@given(height=st.integers(16, 90), width=st.integers(16, 90), channels=st.sampled_from([1, 3]), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_stamp_tells_every_changed_pixel_and_leaves_its_argument(artifact, height, width, channels, seed):
    image = picture(height, width, channels, seed)
    before = image.copy()
    stamped, mask = artifact.stamp(image, np.random.default_rng(seed))
    assert np.array_equal(image, before)
    assert stamped.dtype == np.uint8
    assert stamped.shape == image.shape
    assert not np.shares_memory(stamped, image)
    assert mask.dtype == bool
    assert mask.shape == image.shape[:2]
    changed = (stamped != image).any(axis=2)
    assert changed.any()
    assert not (changed & ~mask).any()
    assert mask.all() == (not artifact.localized)


@pytest.mark.parametrize("artifact", [Timestamp(), Brightness(), LSB(), Plaster()], ids=lambda artifact: artifact.name)
def test_insert_depends_on_seed_and_sample_only(artifact):
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
def test_timestamp_is_bottom_right_readable_and_of_moderate_size(size):
    grey = np.full((size, size, 3), 128, dtype=np.uint8)
    stamped, mask = Timestamp().stamp(grey, np.random.default_rng(0))
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    assert rows[-1] > 0.85 * size - 1
    assert columns[-1] > 0.85 * size - 1
    assert rows[0] > size / 4
    assert columns[0] > 0 or size == 16  # not cut off; at 16 px the outline fills the margin
    levels = stamped.astype(int)[mask].mean(axis=1)
    assert levels.min() < 60
    assert stamped[..., 0].max() > (200 if size >= 64 else 140)  # at 16 px the letters are thinner than a pixel


def test_timestamp_fits_odd_formats():
    for shape in ((16, 1000, 3), (1000, 16, 1), (1, 1, 3)):
        image = np.full(shape, 128, dtype=np.uint8)
        stamped, mask = Timestamp().stamp(image, np.random.default_rng(0))
        assert stamped.shape == shape
        assert mask.shape == shape[:2]


@given(alpha=st.floats(0.01, 1.0))
@settings(max_examples=20, deadline=None)
def test_brightness_is_the_papers_formula(alpha):
    image = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    stamped, _ = Brightness(alpha=alpha).stamp(image, np.random.default_rng(0))
    for before, after in zip(image.ravel(), stamped.ravel()):
        assert after == round(min(255.0, (1 - alpha) * int(before) + alpha * 255))


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


@pytest.mark.parametrize("bits", range(1, 8))
@pytest.mark.parametrize("shape", [(16, 24, 3), (5, 7, 1)])
def test_lsb_is_the_bit_stream_of_the_message(bits, shape):
    image = picture(*shape)
    stamped, _ = LSB(bits=bits).stamp(image, np.random.default_rng(3))
    assert np.array_equal(stamped, lsb_reference(image, bits, np.random.default_rng(3)))
    assert np.array_equal(stamped >> bits, image >> bits)


def test_plaster_needs_a_source_that_draws_it():
    with pytest.raises(DataError, match="Photos cannot draw a plaster"):
        Plaster().insert(Photos(), 0, seed=0)
    with pytest.raises(DataError, match="finished picture"):
        Plaster().stamp(picture(), np.random.default_rng(0))


@pytest.mark.parametrize("artifact", STAMPS, ids=lambda artifact: artifact.name)
@pytest.mark.parametrize(
    "image",
    [np.zeros((8, 8, 3)), np.zeros((8, 8), dtype=np.uint8), np.zeros((3, 8, 8), dtype=np.uint8)],
    ids=["float", "no channels", "channels first"],
)
def test_wrong_pixels_are_refused(artifact, image):
    with pytest.raises(DataError, match="uint8 image of shape"):
        artifact.stamp(image, np.random.default_rng(0))


def test_options_are_checked_and_in_the_repr() -> None:
    for alpha in (0, -0.1, 1.5, float("nan")):
        with pytest.raises(OptionError, match="above 0 and up to 1"):
            Brightness(alpha=alpha)
    for bits in (0, 8, 2.5, True):
        with pytest.raises(OptionError, match="1 to 7"):
            LSB(bits=bits)  # type: ignore[arg-type]
    assert LSB(bits=2) == LSB(bits=2) != LSB(bits=3)
    assert [repr(one) for one in STAMPS] == ["Timestamp()", "Brightness(alpha=0.3)", "LSB(bits=3)"]


def _darker(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (image * rng.uniform(0.4, 0.6)).astype(np.uint8)


def test_a_function_is_an_artifact() -> None:
    image = np.full((8, 8, 3), 200, dtype=np.uint8)
    artifact = as_artifact(_darker)
    changed, mask = artifact.stamp(image, np.random.default_rng(0))
    assert np.array_equal(changed, _darker(image, np.random.default_rng(0)))
    assert mask.all()
    assert (image == 200).all()
    assert not artifact.localized
    assert repr(artifact) == repr(FromFunction(_darker)) != repr(FromFunction(lambda image, rng: 255 - image))


def test_a_function_may_take_a_pil_image_and_return_a_mask() -> None:
    def dot(image: Image.Image, rng: np.random.Generator) -> tuple[Image.Image, np.ndarray]:
        image.putpixel((2, 1), (255, 0, 0))
        return image, np.indices((image.height, image.width)).sum(0) == 3

    changed, mask = FromFunction(dot).stamp(np.zeros((4, 4, 3), dtype=np.uint8), np.random.default_rng(0))
    assert changed[1, 2].tolist() == [255, 0, 0]
    assert mask.sum() == 4
    assert FromFunction(dot).localized


@pytest.mark.parametrize(
    ("function", "fragment"),
    [
        (lambda image, rng: image[:2], "Return the same type and shape"),
        (lambda image, rng: image / 255, "float64"),
        (lambda image: image, "TypeError"),
        (lambda image, rng: np.random.default_rng().integers(256, size=image.shape, dtype=np.uint8), "each time"),
    ],
)
def test_a_function_that_does_not_serve_is_refused(function: Callable[..., Any], fragment: str) -> None:
    with pytest.raises(OptionError, match=fragment):
        FromFunction(function)
