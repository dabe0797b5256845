from __future__ import annotations

import pytest

from benchmarks.speed import Machine, Measure, plan_stages, write_plan
from hansfree.errors import OptionError

RATES = {
    "jpeg_images_per_second": 100.0,
    "cache_images_per_second": 20.0,
    "cache_bytes_per_image": 1e5,
    "features_bytes_per_image": 4e3,
    "head_seconds_per_image": 1e-5,
    "rrr_grid_seconds_per_image": 0.5,
    "heatmaps_per_second": 2.0,
    "paper_seconds_per_image": 0.05,
}
MEASURES = {f"demo.{name}": Measure(f"demo.{name}", (value,)) for name, value in RATES.items()}
HERE = Machine("here")
THERE = Machine("there", arithmetic=50, reading=2, dollars_per_hour=3.0)


def test_a_stage_is_the_images_over_the_rate():
    passing, features, path, rrr, heatmaps, paper = plan_stages(MEASURES, "demo", images=36_000, marked=360)
    assert passing.hours(HERE) == pytest.approx(36_000 / 100 / 3600 + 36_000 / 20 / 3600)
    assert passing.hours(THERE) == pytest.approx(0.1 / 2 + 0.5 / 50)
    assert (passing.bytes, features.bytes) == (3.6e9, 1.44e8)
    assert path.hours(HERE) == pytest.approx(36_000 * 220 * 1e-5 / 3600)
    assert rrr.hours(HERE) == pytest.approx((360 * 10 * 0.5 + 36_000 * 50 * 1e-5) / 3600)
    assert heatmaps.hours(HERE) == pytest.approx(500 / 3600)
    assert paper.hours(HERE) == pytest.approx(220 * 0.1 + 36_000 * 220 * 0.05 / 3600)


def test_rrr_trains_a_large_head_in_all_of_its_inputs():
    plain = Measure("demo.plain_head_seconds_per_image", (1e-3,))
    *_, rrr, _, _ = plan_stages(MEASURES | {plain.name: plain}, "demo", images=36_000, marked=360)
    assert rrr.hours(HERE) == pytest.approx((360 * 10 * 0.5 + 36_000 * 50 * 1e-3) / 3600)


def test_the_table_has_bytes_hours_and_price():
    lines = write_plan(MEASURES, ["demo"], [HERE, THERE], images=36_000, marked=360).splitlines()
    assert lines[0] == "| model | stage | on disk | here | there |"
    assert lines[2] == "| demo | the pass | 3.6 GB | 0.6 h | 0.06 h, $0.18 |"
    assert lines[3] == "| demo | values and tangents | 144 MB |  |  |"
    assert lines[-1].endswith("| 132 h | 13 h, $39.60 |")
    assert {line.count("|") for line in lines} == {6}


def test_a_rate_that_was_not_measured_is_named():
    rest = {name: measure for name, measure in MEASURES.items() if "heatmaps" not in name}
    with pytest.raises(OptionError, match=r"needs demo\.heatmaps_per_second"):
        plan_stages(rest, "demo", images=10, marked=1)
