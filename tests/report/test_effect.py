"""One point per image: where it lies, what it says, and that every method is there without a script."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hansfree.evaluation.results import Results
from hansfree.report.images import Cases, load_cases
from hansfree.report.plots import draw_effect
from tests.report.conftest import META, SELECTION
from tests.report.pictured import case_arrays, write_cases

RESULTS = Results(rows=(), meta=META, selection={}, heatmaps=None)


@pytest.fixture(params=[True, False], ids=["inserted", "natural"])
def cases(request: pytest.FixtureRequest, tmp_path: Path) -> Cases:
    write_cases(tmp_path / "cases.npz", is_paired=request.param)
    found = load_cases(tmp_path / "cases.npz")
    assert found is not None
    return found


def test_every_method_has_a_panel_and_a_choice(cases: Cases) -> None:
    effect = draw_effect(RESULTS, cases, "rr-clarc")
    assert effect is not None
    names = [name for name, _ in effect.choices]
    assert set(names) == {*SELECTION, *(["original"] if cases.is_paired else [])}, "before is no correction"
    assert effect.shown == "rr-clarc"
    assert len(effect.panels) == len(names)
    assert all(panel.count("<path") == 20 for panel in effect.panels), "the sample, not the extremes"
    assert effect.live.count('class="point"') == 20
    assert effect.live.count('tabindex="0"') == 1, "one stop of the tab key"


def test_the_points_lie_where_the_probabilities_are(cases: Cases) -> None:
    effect = draw_effect(RESULTS, cases, "p-clarc")
    assert effect is not None
    places = np.array(effect.data["methods"]["p-clarc"]["places"])
    across, up = (values[:20] for values in cases.places("p-clarc"))
    for seen, shares in zip(places.T, (across, -up)):  # down is more in pixels
        assert np.corrcoef(seen, shares)[0, 1] > 0.9999 or np.ptp(shares) == 0
    drawn = re.findall(r"translate\(([\d.]+)px,([\d.]+)px\)", effect.live)
    np.testing.assert_allclose(np.array(drawn, dtype=float), places)


def test_a_point_knows_its_image_and_its_answers(cases: Cases) -> None:
    effect = draw_effect(RESULTS, cases, "rr-clarc")
    assert effect is not None
    image = effect.data["images"][1]
    assert image["label"] == "melanoma"
    kinds = {"clean", "biased"} if cases.is_paired else {"biased"}
    assert set(image) == {"label", *kinds}
    for kind in kinds:
        assert base64.b64decode(image[kind].partition(",")[2]).startswith(b"\xff\xd8")
    words = effect.data["methods"]["vanilla"]["words"][0]
    assert [word.endswith("%") for word in words] == [True, True, False]
    assert words[2].startswith("answer ")
    assert ("artifact does nothing" in effect.caption) == cases.is_paired


def test_no_class_no_plot(tmp_path: Path) -> None:
    write_cases(tmp_path / "cases.npz")
    cases = load_cases(tmp_path / "cases.npz")
    assert cases is not None
    assert draw_effect(Results(rows=(), meta={}, selection={}, heatmaps=None), cases, "rr-clarc") is None


def test_words_of_the_run_are_escaped(tmp_path: Path) -> None:
    np.savez(tmp_path / "cases.npz", **case_arrays())
    cases = load_cases(tmp_path / "cases.npz")
    assert cases is not None
    named = META | {"class_names": ["<b>", "<script>", "c", "d"]}
    effect = draw_effect(Results(rows=(), meta=named, selection={}, heatmaps=None), cases, "rr-clarc")
    assert effect is not None
    assert "<script>" not in effect.live + "".join(effect.panels)
    assert "&lt;script&gt;" in effect.live


@pytest.mark.parametrize("total", [20, 800])
def test_all_images_are_not_called_a_random_draw(cases: Cases, total: int) -> None:
    counted = replace(cases, counts=dict.fromkeys(cases.counts, (total, 1, 1)))
    effect = draw_effect(RESULTS, counted, "rr-clarc")
    assert effect is not None
    assert effect.caption.startswith("All 20 test images" if total == 20 else "20 test images")
    assert ("drawn at random" in effect.caption) == (total == 800)
