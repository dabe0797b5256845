"""Differences with intervals, from the run folder to the page; and whose faults a verdict counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hansfree.evaluation.results import Results, load_results, validated_rows
from hansfree.reasons import VerdictLevel
from hansfree.report import write_report
from hansfree.report.tables import insertion_table, marks_of, pair_table
from hansfree.report.text import LEVEL_TITLES, write_verdict
from tests.report.conftest import MakeRun, choice
from tests.report.test_page import text_of
from tests.report.test_tables import changed
from tests.report.worlds import SELECTION, World

WORLD = World()
NATURAL = World((80, 60, 30))
GOOD = WORLD.logits(2.5, 0.5)
NAN = {name: np.full_like(logits, np.nan) for name, logits in GOOD.items()}
CONSTANT = {name: np.eye(3)[np.zeros(len(logits), dtype=int)] for name, logits in GOOD.items()}


def folder(make_run: MakeRun, world: World = WORLD, **changed: dict[str, np.ndarray]) -> Path:
    return make_run(**world.parts(**changed))


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
    for metric, part in (("balanced_accuracy_biased", "balanced accuracy"), ("flip_rate", "rate")):
        before, after = (results.chosen(variant)[metric].value for variant in (original, ours))
        value, interval = found["Original"][f"{metric} {part}"]
        assert float(value.replace("\N{MINUS SIGN}", "-")) == pytest.approx(100 * (after - before), abs=0.051)
        low, high = (float(end.replace("\N{MINUS SIGN}", "-")) for end in interval.split(" to "))
        assert low < 100 * (after - before) < high
    for metric in ("accuracy_biased", "flip_rate"):
        assert found["Original"][f"{metric} McNemar p"] == ("< 0.001", "")
    assert found["Original"]["accuracy_clean McNemar p"] == ("1.00", ""), "the same answers on clean images"


def test_any_method_can_be_the_one_shown(make_run: MakeRun) -> None:
    results = load_results(folder(make_run))
    ours, theirs = shown(results)["P-ClArC"], shown(results, "p-clarc")["RR-ClArC"]
    signs = str.maketrans("+\N{MINUS SIGN}", "\N{MINUS SIGN}+")
    for key in ("flip_rate rate", "accuracy_biased accuracy"):
        assert ours[key][0].translate(signs) == theirs[key][0]


def test_p_values_are_corrected_for_the_lines(make_run: MakeRun) -> None:
    """RR-ClArC against A-ClArC is not clear among four comparisons, though it would be alone."""
    run = folder(make_run)
    results = load_results(run)
    alone = {"original": 1e-9, "vanilla": 1e-9, "p-clarc": 0.02, "a-clarc": 0.03}
    paired = [
        replace(each, p=alone[each.rival]) if (each.method, each.metric) == ("rr-clarc", "flip_rate") else each
        for each in results.paired
    ]
    found = shown(replace(results, paired=tuple(paired)))
    assert {name: line["flip_rate McNemar p"][0] for name, line in found.items()} == {
        **{"Original": "< 0.001", "Vanilla": "< 0.001", "P-ClArC": "0.040", "A-ClArC": "0.040"}
    }
    assert "corrected for the number of its lines (Holm)" in text_of(write_report(run))


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
    assert "The rule “corrected” is a model" in text
    assert "Paired on the same images RR-ClArC minus each other model" in text
    assert "with 95 % intervals or ± one standard error" in text


def test_a_natural_bias_is_partly_corrected_at_most(make_run: MakeRun) -> None:
    verdict = write_verdict(load_results(folder(make_run, NATURAL)))
    assert verdict.level == VerdictLevel.PARTLY_CORRECTED
    assert "more cannot be said where the artifact was not inserted" in verdict.rule
    assert "flips" not in " ".join(verdict.sentences)


@pytest.mark.parametrize("broken", [NAN, CONSTANT], ids=["nan", "constant"])
@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_model_that_failed_or_collapsed_is_red(
    make_run: MakeRun, broken: dict[str, np.ndarray], is_noticed: bool
) -> None:
    """Another is shown in its place, and ruled on by what it did itself."""
    noticed = {"rr-clarc": choice(10.0, "best", diverged=[10.0])} if is_noticed else {}
    run = make_run(**WORLD.parts(rr_clarc=broken) | {"selection": SELECTION | noticed})
    page = write_report(run).read_text(encoding="utf-8")
    section = page.partition('<section class="verdict')[2].partition("</section>")[0]
    assert section.startswith(" failed")
    assert '<p class="failure">Do not use this model (RR-ClArC): ' in section
    assert '<strong class="level">A-ClArC: corrected.</strong>' in section
    results = load_results(run)
    assert results.verdicts["rr-clarc"].level == VerdictLevel.UNUSABLE
    assert write_verdict(results).failure == ""


def test_where_all_failed_nothing_is_called_corrected(make_run: MakeRun) -> None:
    names = ("vanilla", "p_clarc", "a_clarc", "rr_clarc")
    run = folder(make_run, **dict.fromkeys(names, CONSTANT))
    page = write_report(run).read_text(encoding="utf-8")
    section = page.partition('<section class="verdict')[2].partition("</section>")[0]
    assert section.startswith(" failed")
    assert 'class="level"' not in section
    assert {each.level for each in load_results(run).verdicts.values()} == {VerdictLevel.UNUSABLE}


def test_validation_images_choose_whom_to_show(make_run: MakeRun) -> None:
    """P-ClArC is the better one on validation images; that A-ClArC wins on test images must not count."""
    run, rows = folder(make_run, rr_clarc=CONSTANT), WORLD.run(rr_clarc=CONSTANT)
    better = [replace(row, value=0.99) if (row.method, row.split) == ("p-clarc", "val") else row for row in rows]
    for given, title in ((rows, "A-ClArC"), (better, "P-ClArC")):
        results = replace(load_results(run), validated=validated_rows(given))
        assert write_verdict(results).title == title


@pytest.mark.parametrize(("flips", "level"), [(0.030, VerdictLevel.AS_REFERENCE), (0.060, VerdictLevel.CORRECTED)])
def test_a_clean_trained_model_is_the_mark_to_reach(make_run: MakeRun, flips: float, level: VerdictLevel) -> None:
    """That model flips 1.5 %; 1.5 points more are within the margin, interval and all, and 4.5 are not."""
    run = make_run(change=changed("rr-clarc", "flip_rate", flips))
    results = load_results(run)
    assert write_verdict(results).level == level
    assert "Clean-trained" in shown(results)
    assert f"{LEVEL_TITLES[level].capitalize()}. On 800 test images" in text_of(write_report(run))
