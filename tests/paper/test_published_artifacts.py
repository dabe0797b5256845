"""Artifacts of the published code, against what that code returned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from hansfree.data import LSB, Brightness
from hansfree_paper.published_artifacts import LSB_TEXT, PublishedTimestamp, print_text

RNG = np.random.default_rng


class Recorded:
    """A generator that gives the numbers that the published code drew, without those that it never used."""

    def __init__(self, kinds: np.ndarray, values: np.ndarray) -> None:
        sizes = [1, *[1] * 6, 1, 2, 1, 3, 1]  # the last normal colours nothing
        drawn = [part.tolist() for part in np.split(values, np.cumsum(sizes)[:-1])]
        self.drawn = [(kind, part) for place, (kind, part) in enumerate(zip(kinds, drawn)) if place != len(sizes) - 2]

    def _next(self, kind: str) -> Any:
        found, values = self.drawn.pop(0)
        assert found == kind
        return values[0] if len(values) == 1 else np.array(values)

    def integers(self, below: int) -> Any:
        assert below == 1095 * 86400
        return self._next("randint")

    def choice(self, among: Any) -> Any:
        value = self._next("choice")
        assert value in (range(among) if isinstance(among, int) else list(among))
        return value

    def normal(self, mean: float, spread: float, size: int = 1) -> Any:
        return self._next("normal")


@pytest.mark.parametrize("seed", [17, 401, 1203, 9])
def test_the_timestamp_is_the_published_one(published: Mapping[str, np.ndarray], seed: int) -> None:
    key = f"art_time_datetime_s{seed}"
    image, (top, bottom, left, right) = published["art_img224"], published[f"{key}_patchbox"]
    options = {"canvas": int(published[f"{key}_size"]), "angle": float(published[f"{key}_rotation"])}
    x, y = map(int, published[f"{key}_pos"])
    colour = tuple(map(int, published[f"{key}_color"]))
    printed, mask = print_text(image, str(published[f"{key}_text"]), (x, y), colour=colour, **options)
    expected = image.copy()
    expected[top:bottom, left:right] = published[f"{key}_patch"]
    assert np.array_equal(printed, expected)
    assert np.array_equal(mask, published[f"{key}_mask"])
    drawn = Recorded(published[f"{key}_draw_kinds"], published[f"{key}_draw_values"])
    again, again_mask = PublishedTimestamp().stamp(image, drawn)  # type: ignore[arg-type]
    assert np.array_equal(again, expected)
    assert np.array_equal(again_mask, mask)
    assert not drawn.drawn


def test_the_published_timestamp_vanishes_on_dark_ground_only_where_it_is_black() -> None:
    shown = [PublishedTimestamp().stamp(np.full((64, 64, 3), 10, dtype=np.uint8), RNG(seed)) for seed in range(60)]
    unseen = [np.abs(stamped.astype(int) - 10).max() < 30 for stamped, _ in shown]
    assert 1 < sum(unseen) < 20  # an eighth
    places = {(int(np.argwhere(mask)[0][0]) < 32, int(np.argwhere(mask)[0][1]) < 16) for _, mask in shown}
    assert len(places) == 4
    assert PublishedTimestamp().stamp(np.zeros((40, 48, 1), dtype=np.uint8), RNG(0))[0].shape == (40, 48, 1)
    assert repr(PublishedTimestamp()) == "PublishedTimestamp()"


@pytest.mark.parametrize("size", ["64", "224", "40x56"])
def test_brightness_and_lsb_are_the_published_ones(published: Mapping[str, np.ndarray], size: str) -> None:
    image = published[f"art_img{size}"]
    assert np.array_equal(Brightness().stamp(image, RNG(0))[0], published[f"art_brightness_{size}"])
    for bits in (1, 2, 3):
        if (key := f"art_lsb{bits}_{size}") in published:
            assert np.array_equal(LSB(bits=bits, text=LSB_TEXT).stamp(image, RNG(0))[0], published[key])
        if (key := f"art_lsb{bits}_shorttrigger_{size}") in published:
            text = "ThisIsASecretCleverHansTrigger"
            assert np.array_equal(LSB(bits=bits, text=text).stamp(image, RNG(0))[0], published[key])
