"""Image properties: their values, ranks, p-values for many comparisons, and descriptions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image, ImageFilter

from hansfree.data.artifacts import Brightness, Timestamp
from hansfree.data.lesions import SyntheticLesions
from hansfree.discovery.properties import (
    FILE_WORDS,
    MIN_COMPARED,
    PIXEL_WORDS,
    Family,
    Measurements,
    Property,
    compare_groups,
    compare_properties,
    compare_together,
    measure_file,
    measure_pixels,
    rank_columns,
)
from hansfree.errors import DataError

World = tuple[np.ndarray, np.ndarray, np.ndarray]


def flat(value: int = 100, *, size: int = 32, channels: int = 3) -> np.ndarray:
    return np.full((size, size, channels), value, dtype=np.uint8)


def test_a_flat_grey_image_has_brightness_alone() -> None:
    found = measure_pixels(flat(100))
    assert found["brightness"] == pytest.approx(100)
    assert all(value == pytest.approx(0, abs=1e-9) for name, value in found.items() if name != "brightness")
    assert set(found) == set(PIXEL_WORDS)
    assert measure_pixels(flat(100, channels=1)) == pytest.approx(found)


def changed(rows: slice, columns: slice, channel: slice | int, value: int) -> dict[str, float]:
    image = flat()
    image[rows, columns, channel] = value
    return measure_pixels(image)


ALL, START, END = slice(None), slice(4), slice(-4, None)


def test_each_change_moves_its_property() -> None:
    red = changed(ALL, ALL, 0, 160)
    room = 100 + 0.299 * 60  # down to black, which is nearer than white
    assert red["red cast"] == pytest.approx(60 / room)
    assert red["saturation"] == pytest.approx(60 / room)
    assert changed(ALL, ALL, 2, 160)["blue cast"] == pytest.approx(60 / (100 + 0.114 * 60))
    assert changed(START, START, ALL, 0)["corner brightness"] < -0.2
    border = changed(slice(2, -2), slice(2, -2), ALL, 200)["border brightness"]
    assert border == pytest.approx(-100 / (255 - (100 + 100 * 28**2 / 32**2)))
    busy = changed(END, slice(28, None, 2), ALL, 255)
    assert busy["corner detail"] > 0.7
    assert busy["white share"] == pytest.approx(8 / 1024)
    assert busy["sharpness"] > measure_pixels(flat())["sharpness"]
    assert measure_pixels(flat(0))["black share"] == 1
    image = flat()
    image[:4, :4] = (200, 20, 20)
    assert measure_pixels(image)["corner colour"] == pytest.approx(1.8, rel=0.02)


def test_blur_artifacts_and_exposure_change_their_own_properties() -> None:
    image, rng = SyntheticLesions(1, size=64).image(0), np.random.default_rng(0)
    before = measure_pixels(image)
    blurred = np.asarray(Image.fromarray(image).filter(ImageFilter.GaussianBlur(2)))
    assert measure_pixels(blurred)["sharpness"] < before["sharpness"]
    assert measure_pixels(Timestamp().stamp(image, rng)[0])["corner detail"] > before["corner detail"]
    after = measure_pixels(Brightness().stamp(image, rng)[0])
    assert after.pop("brightness") > before.pop("brightness") + 20
    assert after == pytest.approx(before, rel=0.05, abs=0.01)


def test_a_file_has_size_and_quality(tmp_path: Path) -> None:
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


def test_what_cannot_be_measured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="3 x 3 pixels or more"):
        measure_pixels(np.zeros((2, 9, 3), dtype=np.uint8))
    (tmp_path / "a.jpg").write_text("no image")
    with pytest.raises(DataError, match=r"a\.jpg cannot be read as an image"):
        measure_file(str(tmp_path / "a.jpg"))


def auc_by_pairs(values: np.ndarray, inside: np.ndarray) -> float:
    """Count, for every pair, who has more; equals and pairs with an unknown count half."""
    won = [
        0.5 if not np.isfinite([one, other]).all() or one == other else float(one > other)
        for one in values[inside]
        for other in values[~inside]
    ]
    return float(np.mean(won))


@settings(max_examples=40, deadline=None)
@given(arrays(np.float64, (16, 2), elements=st.sampled_from([0.0, 1.0, 2.5, 7.0, np.nan])))
def test_rank_sums_count_pairs(values: np.ndarray) -> None:
    number = np.repeat([0, 1, 0], [5, 7, 4])
    compared = compare_groups(rank_columns(values), number, 2)
    for column in range(2):
        known = values[np.isfinite(values[:, column]), column]
        expected = 0.5 if np.unique(known).size < 2 else auc_by_pairs(values[:, column], number == 1)
        assert compared.auc[1, column] == pytest.approx(expected)
        assert compared.auc[0, column] == pytest.approx(1 - compared.auc[1, column])


def test_z_scores_are_in_standard_errors_of_a_permutation() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 5, size=(40, 1)).astype(float)  # many ties
    number = (np.arange(40) < 12).astype(np.int64)
    ranks = rank_columns(values)
    permuted = np.array([compare_groups(ranks, rng.permutation(number), 2).z[1, 0] for _ in range(3000)])
    assert permuted.mean() == pytest.approx(0, abs=0.07)
    assert permuted.std() == pytest.approx(1, abs=0.05)


def test_groups_that_are_too_small_or_constant_have_no_difference() -> None:
    values = np.column_stack([np.arange(20.0), np.ones(20)])
    number = (np.arange(20) >= 20 - (MIN_COMPARED - 1)).astype(np.int64)
    small = compare_groups(rank_columns(values), number, 3)
    assert (small.auc == 0.5).all()
    assert (small.z == 0).all()
    enough = compare_groups(rank_columns(values), (np.arange(20) >= 20 - MIN_COMPARED).astype(np.int64), 2)
    assert enough.auc[1].tolist() == [1.0, 0.5]


def test_p_values_hold_for_all_comparisons_together() -> None:
    alarms = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        families = [
            Family(rank_columns(rng.normal(size=(60, 8))), rng.integers(0, 3, 60), 3),
            Family(rank_columns(rng.normal(size=(30, 8))), rng.integers(0, 2, 30), 2),
        ]
        found = compare_together(families, permutations=39, seed=seed)
        alarms += min(p.min() for p in found) <= 0.05
    assert alarms <= 9  # 3 are expected; uncorrected, nearly every seed would raise one


def compare(values: np.ndarray, labels: np.ndarray, is_wrong: np.ndarray) -> tuple[Property, ...]:
    measured = Measurements(("brightness", "contrast", "sharpness"), values)
    return compare_properties(measured, labels, is_wrong, class_names=("MEL", "NV", "BCC"), permutations=99, seed=0)


@pytest.fixture
def world() -> World:
    """Images of MEL are brighter, and the model errs on those that are not."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 60)
    values = rng.normal(size=(180, 3))
    values[labels == 0, 0] += 1.2
    is_wrong = (labels == 0) & (values[:, 0] < 0.7)
    return values, labels, is_wrong


def test_the_most_anomalous_property_is_first(world: World) -> None:
    first, *others = compare(*world)
    assert (first.name, first.label, first.level) == ("brightness", 0, "clear")
    assert first.auc > 0.7
    assert first.error_auc == 0  # all wrong ones are darker than all right ones
    assert first.anomaly == pytest.approx(2 * first.auc - 1 + 1)
    assert first.sentence == (
        f"Images of class 'MEL' are brighter than the others: AUC {first.auc:.2f} (corrected p = 0.010). Among them "
        "the model makes fewer errors on images that are brighter: AUC 1.00 (corrected p = 0.010)."
    )
    assert {found.name for found in others} == {"brightness", "contrast", "sharpness"}
    assert all(found.anomaly == 0 for found in others if found.name != "brightness")


def test_a_correlation_with_the_errors_alone_is_weak() -> None:
    """As where an artifact is in few images of its class: the class hardly differs."""
    values, labels = np.random.default_rng(1).normal(size=(180, 3)), np.repeat([0, 1, 2], 60)
    first, *others = compare(values, labels, (labels == 0) & (values[:, 0] < 0))
    assert (first.name, first.label, first.level) == ("brightness", 0, "weak")
    assert first.anomaly == pytest.approx(1)
    assert first.sentence.startswith(
        "In class 'MEL' the model makes fewer errors on images that are brighter: AUC 1.00 ("
    )
    assert first.sentence.endswith("The class itself does not differ from the others in brightness.")
    assert all(found.anomaly == 0 for found in others)
