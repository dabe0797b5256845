"""Heatmaps as the page holds them, read back from their files."""

from __future__ import annotations

import base64
import io
import math
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from hansfree.evaluation.results import HeatmapSet, Results, load_results
from hansfree.report.images import Maps, show_direction, show_heatmaps
from tests.report.conftest import MakeRun

EMPTY = Results(rows=(), meta={}, selection={}, heatmaps=None)
GREEN = (0, 158, 115)


def small_set(*, masks: np.ndarray | None = None, side: int = 8, **relevance: np.ndarray) -> HeatmapSet:
    rectangle = np.zeros((2, side, side), dtype=bool)
    rectangle[:, 2:6, 2:6] = True
    images = np.zeros((2, side, side, 3), dtype=np.uint8)
    return HeatmapSet(images, rectangle if masks is None else masks, relevance)


def shown(maps: HeatmapSet, method: str = "rr-clarc") -> Maps:
    found = show_heatmaps(replace(EMPTY, heatmaps=maps), method)
    assert found is not None
    return found


def pixels(source: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))).convert("RGB"))


def test_nothing_to_show_is_none() -> None:
    assert show_heatmaps(EMPTY, "rr-clarc") is None
    assert show_direction(EMPTY) is None
    assert show_direction(replace(EMPTY, heatmaps=small_set(original=np.ones((2, 8, 8))))) is None, "an older folder"


def test_methods_stand_in_the_order_of_the_table(make_run: MakeRun) -> None:
    ones = np.ones((2, 8, 8))
    maps = HeatmapSet(np.zeros((2, 8, 8, 3), np.uint8), np.zeros((2, 8, 8), bool), {"vanilla": ones, "original": ones})
    found = show_heatmaps(replace(load_results(make_run()), heatmaps=maps), "vanilla")
    assert found is not None
    assert [cell.title for cell in found.rows[0]] == ["test image 1", "Original", "Vanilla"]
    assert (found.choices, found.shown) == ((("vanilla", "Vanilla"),), "vanilla")


def test_a_method_without_heatmaps_is_not_the_first_choice() -> None:
    ones = np.ones((2, 8, 8))
    assert shown(small_set(original=ones, vanilla=ones), "rr-clarc").shown == "vanilla"
    assert shown(small_set(original=ones), "rr-clarc").shown == ""


def test_all_methods_share_one_symmetric_scale() -> None:
    nowhere = np.zeros((2, 8, 8), dtype=bool)
    weak, strong = np.full((2, 8, 8), 0.1), np.full((2, 8, 8), 1.0)
    row = shown(small_set(masks=nowhere, original=weak, vanilla=strong, rrr=-strong)).rows[0]
    colours = {cell.method: pixels(cell.source)[0, 0].astype(int) for cell in row[1:]}
    assert colours["vanilla"][0] > colours["vanilla"][2] + 60, "the strong one is dark red"
    assert colours["rrr"][2] > colours["rrr"][0] + 60
    assert colours["original"].min() > 200, "the weak one is pale"
    assert np.abs(pixels(row[1].source).astype(int) - colours["original"]).max() == 0


def test_the_mask_is_outlined_unless_it_fills_the_image_or_is_unknown() -> None:
    ones = np.ones((2, 8, 8))
    found = shown(small_set(original=ones))
    is_green = (pixels(found.rows[0][1].source) == GREEN).all(axis=2)
    assert is_green.sum() == 12, "the rim of four by four pixels"
    assert "green outline" in found.caption
    for masks in (np.ones((2, 8, 8), bool), np.zeros((2, 8, 8), bool)):
        found = shown(small_set(masks=masks, original=ones))
        assert not (pixels(found.rows[0][1].source) == GREEN).all(axis=2).any()
        assert "outline" not in found.caption


def test_large_images_are_made_small() -> None:
    rng = np.random.default_rng(0)
    found = shown(small_set(side=300, original=rng.normal(size=(2, 300, 300))))
    assert {pixels(cell.source).shape for cell in found.rows[0]} == {(128, 128, 3)}


def test_grey_images_can_be_shown() -> None:
    grey = replace(small_set(original=np.ones((2, 8, 8))), images=np.full((2, 8, 8, 1), 100, dtype=np.uint8))
    assert np.abs(pixels(shown(grey).rows[0][0].source).astype(int) - 100).max() < 3


@pytest.mark.parametrize("value", [0.0, math.nan])
def test_heatmaps_without_relevance(value: float) -> None:
    found = shown(small_set(original=np.full((2, 8, 8), value)))
    assert [bool(row[1].source) for row in found.rows] == [value == 0] * 2


def test_the_direction_has_a_scale_of_its_own() -> None:
    maps = replace(small_set(original=100 * np.ones((2, 8, 8))), direction=np.ones((2, 8, 8)))
    found = show_direction(replace(EMPTY, heatmaps=maps))
    assert found is not None
    assert [cell.title for cell in found.rows[0]] == ["test image 1", "Direction"]
    red, _, blue = pixels(found.rows[0][1].source)[0, 0].astype(int)
    assert red > blue + 60
    assert "little else" in found.caption
    everywhere = show_direction(replace(EMPTY, heatmaps=replace(maps, masks=np.ones((2, 8, 8), dtype=bool))))
    assert everywhere is not None
    assert "little else" not in everywhere.caption


@pytest.mark.parametrize(
    ("told", "words"), [(None, "LRP (epsilon"), ("lrp", "LRP (epsilon"), ("gradient x input", "Gradient x input: red")]
)
def test_the_caption_names_the_explanation_that_was_used(told: str | None, words: str) -> None:
    maps = small_set(original=np.ones((2, 8, 8)))
    found = show_heatmaps(replace(EMPTY, heatmaps=maps, meta={"explanation": told}), "rr-clarc")
    assert found is not None
    assert found.caption.startswith(words)


def test_an_image_says_which_it_is_and_the_caption_what_is_explained() -> None:
    maps = replace(small_set(original=np.ones((2, 8, 8))), labels=np.array([1, 0]), ids=np.array([17, 4]))
    meta = {"biased_class": 0, "class_names": ["naevus", "melanoma"], "image_names": {"17": "deep/a.png"}}
    found = show_heatmaps(replace(EMPTY, heatmaps=maps, meta=meta), "rr-clarc")
    assert found is not None
    assert [row[0].title for row in found.rows] == ["deep/a.png: melanoma", "test image, id 4: naevus"]
    assert found.rows[0][1].alt == "Heatmap of deep/a.png: melanoma, Original"
    assert "red pixels speak for “naevus”, blue ones against it" in found.caption
