"""Differences with intervals, from the run folder to the page; and run folders from before there were any."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from hansfree.report import write_report
from hansfree.report.pairs import pair_table
from hansfree.report.reading import Results, load_results
from hansfree.report.tables import insertion_table, marks_of
from hansfree.report.verdict import reach_verdict
from tests.report.conftest import MakeRun, choice
from tests.report.test_page import text_of
from tests.report.worlds import SELECTION, World

WORLD = World()
NATURAL = World((80, 60, 30))
GOOD = WORLD.logits(2.5, 0.5)
NAN = {name: np.full_like(logits, np.nan) for name, logits in GOOD.items()}
CONSTANT = {name: np.eye(3)[np.zeros(len(logits), dtype=int)] for name, logits in GOOD.items()}


def folder(make_run: MakeRun, world: World = WORLD, **changed: dict[str, np.ndarray]) -> Path:
    """Write a run folder as a run of today does."""
    run = make_run(change=lambda _: world.run(**changed), selection=SELECTION, paired=None, meta=world.meta)
    path = run / "results.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["paired"] = [asdict(each) for each in world.paired(**changed)]
    content["intervals"] = world.intervals(**changed)
    path.write_text(json.dumps(content), encoding="utf-8")
    return run


def shown(results: Results, method: str = "rr-clarc") -> dict[str, dict[str, tuple[str, str]]]:
    table = pair_table(results, results.variant(method))
    assert table is not None
    keys = [f"{column.metric} {column.part}" for column in table.columns]
    return {line.title: dict(zip(keys, ((cell.value, cell.interval) for cell in line.cells))) for line in table.lines}


def test_every_rival_has_a_line_and_every_number_its_interval(make_run: MakeRun) -> None:
    results = load_results(folder(make_run))
    found = shown(results)
    assert list(found) == ["Original", "Vanilla", "P-ClArC", "A-ClArC"]
    ours, original = results.variant("rr-clarc"), results.variant("original")
    assert ours is not None
    assert original is not None
    for metric, part in (("balanced_accuracy_biased", "balanced accuracy"), ("flip_rate", "")):
        before, after = (results.chosen(variant)[metric].value for variant in (original, ours))
        value, interval = found["Original"][f"{metric} {part}"]
        assert float(value.replace("\N{MINUS SIGN}", "-")) == pytest.approx(100 * (after - before), abs=0.051)
        low, high = (float(end.replace("\N{MINUS SIGN}", "-")) for end in interval.split(" to "))
        assert low < 100 * (after - before) < high
    assert found["Original"]["accuracy_biased McNemar p"] == ("< 0.001", "")
    assert found["Original"]["accuracy_clean McNemar p"] == ("1", ""), "the same answers on clean images"


def test_any_method_can_be_the_one_shown(make_run: MakeRun) -> None:
    results = load_results(folder(make_run))
    ours, theirs = shown(results)["P-ClArC"], shown(results, "p-clarc")["RR-ClArC"]
    signs = str.maketrans("+\N{MINUS SIGN}", "\N{MINUS SIGN}+")
    for key in ("flip_rate ", "accuracy_biased accuracy"):
        assert ours[key][0].translate(signs) == theirs[key][0]
    assert ours["accuracy_biased McNemar p"] == theirs["accuracy_biased McNemar p"]


def test_the_table_of_methods_has_intervals_where_they_are_known(make_run: MakeRun) -> None:
    results = load_results(folder(make_run))
    table = insertion_table(results)
    line = next(line for line in table.lines if line.title == "RR-ClArC")
    cells = dict(zip((column.metric for column in table.columns), line.cells))
    low, high = (float(end) for end in cells["flip_rate"].interval.split("\N{EN DASH}"))
    assert low < float(cells["flip_rate"].value) < high
    assert cells["auroc_clean"].interval == ""
    assert cells["auroc_clean"].stderr


def test_fewer_flips_are_better_image_by_image_too(make_run: MakeRun) -> None:
    marks = {variant.method: mark for variant, mark in marks_of(load_results(folder(make_run)), "flip_rate").items()}
    assert marks == {"rr-clarc": "best"}


def test_a_repeat_has_no_interval_of_its_own(make_run: MakeRun) -> None:
    results = load_results(folder(make_run))
    first = results.variant("rr-clarc")
    assert first is not None
    again = type(first)(**{**vars(first), "seed": 7})
    assert results.interval(first, "flip_rate") is not None
    assert results.interval(again, "flip_rate") is None
    original = results.variant("original")
    assert original is not None
    assert results.difference(again, original, "flip_rate") is None


def test_the_page_says_the_verdict_its_rule_and_the_pairs(make_run: MakeRun) -> None:
    text = text_of(write_report(folder(make_run)))
    assert "Corrected. On 310 test images the plaster artifact changes" in text.replace("\N{NO-BREAK SPACE}", " ")
    assert "Differences on the same images, in points with 95 % intervals: flips \N{MINUS SIGN}" in text
    assert "Rule: “corrected” is a model" in text
    assert "kept no intervals" not in text
    assert "Paired on the same images RR-ClArC minus each other model" in text
    assert "with 95 % intervals or ± one standard error" in text


def test_a_natural_bias_is_partly_corrected_at_most(make_run: MakeRun) -> None:
    verdict = reach_verdict(load_results(folder(make_run, NATURAL)))
    assert verdict.ruling == "partly corrected"
    assert "more cannot be said where the artifact was not inserted" in verdict.rule
    assert "flips" not in " ".join(verdict.sentences)


@pytest.mark.parametrize("broken", [NAN, CONSTANT], ids=["nan", "constant"])
@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_model_that_failed_or_collapsed_is_red(
    make_run: MakeRun, broken: dict[str, np.ndarray], is_noticed: bool
) -> None:
    run = folder(make_run, rr_clarc=broken)
    if is_noticed:
        path = run / "results.json"
        content = json.loads(path.read_text(encoding="utf-8"))
        content["selection"]["rr-clarc"] = choice(10.0, "best", diverged=[10.0])
        path.write_text(json.dumps(content), encoding="utf-8")
    page = write_report(run).read_text(encoding="utf-8")
    section = page.partition('<section class="verdict')[2].partition("</section>")[0]
    assert section.startswith(" failed")
    assert '<p class="failure">Do not use this model (RR-ClArC): ' in section
    assert "Corrected" not in section
    assert reach_verdict(load_results(run)).ruling == "do not use"


def test_an_earlier_run_has_a_verdict_and_no_table_of_pairs(make_run: MakeRun) -> None:
    """Its pairs are RR-ClArC's alone, with standard errors."""
    run = make_run()
    results = load_results(run)
    assert pair_table(results, results.variant("rr-clarc")) is None
    verdict = reach_verdict(results)
    assert verdict.ruling == "corrected"
    assert verdict.rule.endswith("they are taken as 1.96 standard errors to each side.")
    text = text_of(write_report(run))
    assert "Paired on the same images" not in text
    assert "95 % intervals or" not in text
