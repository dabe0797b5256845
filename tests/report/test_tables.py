"""Who is marked best, who competes, and how numbers are written."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansfree.evaluation.results import Results, Row, Variant, load_results
from hansfree.evaluation.verdict import status_of
from hansfree.reasons import VerdictLevel
from hansfree.report.numbers import percent, write_stderr, write_value
from hansfree.report.tables import Line, Table, inner_table, insertion_table, marks_of
from hansfree.report.text import describe_setting, write_verdict
from tests.report.conftest import CHOSEN, META, SELECTION, MakeRun, choice, score
from tests.report.pairing import pair


def marked(results: Results, metric: str) -> dict[str, str]:
    return {variant.method: mark for variant, mark in marks_of(results, metric).items()}


def line_of(table: Table, title: str) -> Line:
    return next(line for line in table.lines if line.title == title)


def changed(method: str, metric: str, value: float):
    def change(rows: list[Row]) -> list[Row]:
        return [
            replace(row, value=value)
            if (row.method, row.metric, row.split, row.chosen) == (method, metric, "test", 1)
            else row
            for row in rows
        ]

    return change


def test_best_is_nearest_to_the_ideal(make_run: MakeRun) -> None:
    results = load_results(make_run())
    # 0.31, 0.47 and 0.62: neither the largest nor the smallest
    assert marked(results, "tcav") == {"rr-clarc": "best"}
    assert marked(results, "balanced_accuracy_biased") == {"rr-clarc": "best", "a-clarc": "near"}
    assert marked(results, "flip_rate") == {"rr-clarc": "best"}


def test_a_change_is_best_at_zero(make_run: MakeRun) -> None:
    results = load_results(make_run(change=changed("vanilla", "probability_change", -0.4)))
    assert marked(results, "probability_change") == {"rr-clarc": "best"}


def test_equal_columns_mark_nobody(make_run: MakeRun) -> None:
    assert marked(load_results(make_run()), "tcav_zero_share") == {}


def test_a_collapsed_head_does_not_compete(make_run: MakeRun) -> None:
    def collapse(rows: list[Row]) -> list[Row]:
        values = {"balanced_accuracy_clean": 0.25, "balanced_accuracy_biased": 0.25, "flip_rate": 0.0}
        return [replace(row, value=values.get(row.metric, row.value)) if row.method == "rrr" else row for row in rows]

    results = load_results(make_run(change=collapse))
    rrr = Variant("rrr", "timestamp", target="sum", norm="squared", seed=0)
    assert status_of(results, rrr) == "chance"
    assert marked(results, "flip_rate") == {"rr-clarc": "best"}
    assert line_of(insertion_table(results), "RRR").detail == "at chance level"


def test_one_value_that_is_not_finite_fails_the_method(make_run: MakeRun) -> None:
    results = load_results(make_run(change=changed("rr-clarc", "auroc_biased", math.nan)))
    line = line_of(insertion_table(results), "RR-ClArC")
    assert line.kind == "failed"
    assert "NaN" in [cell.value for cell in line.cells]
    assert all(not cell.mark for cell in line.cells)
    assert marked(results, "balanced_accuracy_biased") == {"a-clarc": "best"}


def test_a_method_that_breaks_the_rule_competes_and_is_told(make_run: MakeRun) -> None:
    # A-ClArC has no strength: leaving it out of the comparison would flatter the others.
    broken = SELECTION | {"a-clarc": choice(None, "has no strength to choose", objection="is too weak")}
    results = load_results(make_run(selection=broken, change=changed("a-clarc", "flip_rate", 0.01)))
    assert line_of(insertion_table(results), "A-ClArC").detail == "breaks the selection rule"
    assert marked(results, "flip_rate") == {"a-clarc": "best"}


def test_the_verdict_says_why_nothing_could_be_chosen(make_run: MakeRun) -> None:
    def none_chosen(rows: list[Row]) -> list[Row]:
        return [replace(row, chosen=0) if row.method == "rr-clarc" else row for row in rows]

    selection = SELECTION | {"rr-clarc": choice(None, "every head lost class 2", objection="lost class 2")}
    results = load_results(make_run(change=none_chosen, selection=selection))
    assert line_of(insertion_table(results), "RR-ClArC").detail == "failed: no usable result"
    assert write_verdict(results).warning == "Do not use this model (RR-ClArC): every head lost keratosis."


def test_the_order_of_methods_is_the_papers(make_run: MakeRun) -> None:
    def shuffle(rows: list[Row]) -> list[Row]:
        return [score("new-method", "flip_rate", 0.3), *reversed(rows)]

    methods = [variant.method for variant in load_results(make_run(change=shuffle)).methods()]
    assert methods == [*list(CHOSEN)[:-1], "new-method", "clean-trained"]


def test_a_method_without_any_row_stands_as_failed(make_run: MakeRun) -> None:
    results = load_results(make_run(change=lambda rows: [row for row in rows if row.method != "rr-clarc"]))
    assert line_of(insertion_table(results), "RR-ClArC").kind == "failed"


def test_rows_and_columns(make_run: MakeRun) -> None:
    results = load_results(make_run())
    table = insertion_table(results)
    assert [line.title for line in table.lines] == [
        *("Original", "Vanilla", "RRR", "P-ClArC", "A-ClArC", "RR-ClArC", "Clean-trained", "Majority rate"),
    ]
    assert [line.kind for line in table.lines] == ["reference", *["method"] * 5, "reference", "reference"]
    assert table.heads[:3] == [("Accuracy", 2), ("Balanced accuracy", 2), ("AUROC", 2)]
    assert sum(span for _, span in table.heads) == len(table.columns)
    majority = dict(zip([c.metric for c in table.columns], line_of(table, "Majority rate").cells))
    assert majority["accuracy_biased"].value == "41.0"
    assert majority["balanced_accuracy_biased"].value == "25.0"
    assert line_of(table, "RR-ClArC").detail == "strength 10"
    worst = dict(zip([c.metric for c in table.columns], line_of(table, "RR-ClArC").cells))["accuracy_worst_group"]
    assert (worst.value, worst.group) == ("67.1", "melanoma with artifact")
    assert {c.metric: c.ideal for c in inner_table(results).columns}["tcav"] == "50"
    assert "Majority rate" not in [line.title for line in inner_table(results).lines]


def test_epochs_and_strengths_not_taken_stay_out_of_the_table(make_run: MakeRun) -> None:
    def add(rows: list[Row]) -> list[Row]:
        return [
            *rows,
            score("rr-clarc", "flip_rate", 0.0, strength=99.0, chosen=0),
            score("rr-clarc", "flip_rate", 0.0, strength=10.0, epoch=3),
        ]

    line = line_of(insertion_table(load_results(make_run(change=add))), "RR-ClArC")
    assert "0.0" not in [cell.value for cell in line.cells]


def test_variants_are_told_apart_by_what_differs(make_run: MakeRun) -> None:
    def add(rows: list[Row]) -> list[Row]:
        return [
            *rows,
            score("rr-clarc", "flip_rate", 0.2, cav="svm", strength=10.0),
            score("vanilla", "flip_rate", 0.2, seed=1),
        ]

    titles = [line.title for line in insertion_table(load_results(make_run(change=add))).lines]
    assert "RR-ClArC · signal" in titles
    assert "RR-ClArC · svm" in titles
    assert "Vanilla · seed 0" in titles
    assert "A-ClArC" in titles


def test_the_verdict(make_run: MakeRun) -> None:
    results = load_results(make_run())
    verdict = write_verdict(results)
    assert verdict.failure == ""
    told = " ".join(verdict.sentences).replace("\N{NO-BREAK SPACE}", " ")
    assert len(verdict.sentences) == 2
    assert told == (
        "On 800 test images the timestamp artifact changes 6.0 % of the decisions after RR-ClArC instead of 56.0 % "
        "before. Balanced accuracy rises from 48.0 % to 87.1 % on images with the artifact, and stays about the same "
        "on images without it (92.1 % before, 91.6 % after)."
    )
    assert verdict.differences == (
        "Differences on the same images, in points with 95 % intervals: flips \N{MINUS SIGN}50.0 "
        "(\N{MINUS SIGN}52.0 to \N{MINUS SIGN}48.0), balanced accuracy with the "
        "artifact +39.1 (+37.1 to +41.1), balanced accuracy without the artifact \N{MINUS SIGN}0.5 "
        "(\N{MINUS SIGN}2.5 to +1.5)."
    )
    assert verdict.level == VerdictLevel.CORRECTED
    assert verdict.beside.replace("\N{NO-BREAK SPACE}", " ") == (
        "It is the best of 5 methods on images with the artifact, with no clear difference to A-ClArC (within one "
        "standard error). "
        "Plain fine-tuning (Vanilla) alone: 47.0 % flips, 54.1 % balanced accuracy with the artifact. "
        "A model trained on clean data changes 1.5 % of its answers."
    )
    assert describe_setting(results) == (
        "A demo model and the timestamp artifact, taken as a sign of “melanoma”, corrected at layer features.9; "
        "4,000 training, 400 validation and 800 test images of 64 px."
    )


def test_the_sizes_of_pairs_are_those_of_the_clean_images(make_run: MakeRun) -> None:
    meta = {key: value for key, value in META.items() if key not in ("n_val", "n_test")}
    meta |= {"n_val_clean": 300, "n_val_biased": 300, "n_test_clean": 700, "n_test_biased": 700}
    told = describe_setting(load_results(make_run(meta=meta)))
    assert "4,000 training, 300 validation and 700 test images" in told


@pytest.mark.parametrize(
    ("value", "stderr", "words"), [(0.875, 0.01, "within one standard error"), (0.95, 0.05, "The best of 5 methods")]
)
def test_the_verdict_names_a_better_rival(make_run: MakeRun, value: float, stderr: float, words: str) -> None:
    run = make_run(change=changed("p-clarc", "balanced_accuracy_biased", value))
    results = load_results(run)
    unclear = pair("rr-clarc", "p-clarc", "balanced_accuracy_biased", 0.871 - value, stderr=stderr)
    verdict = write_verdict(replace(results, paired=(unclear,)))
    assert "after RR-ClArC" in verdict.sentences[0]
    assert words in verdict.beside
    assert "P-ClArC" in verdict.beside
    assert "clearly better" not in verdict.subject


def test_pairs_decide_who_is_near(make_run: MakeRun) -> None:
    # both fall short of RR-ClArC by far more, and by far less, than its own standard error of 0.012
    metrics = ("accuracy_biased", "balanced_accuracy_biased")
    pairs = [
        pair("rr-clarc", rival, metric, value, stderr=error)
        for rival, value, error in (("p-clarc", 0.049, 0.050), ("a-clarc", 0.009, 0.004))
        for metric in metrics
    ]
    results = load_results(make_run(paired=pairs))
    for metric in metrics:
        assert marked(results, metric) == {"rr-clarc": "best", "p-clarc": "near"}
    assert "no clear difference to P-ClArC (within" in write_verdict(results).beside


@pytest.mark.parametrize(("error", "is_near"), [(0.02, True), (0.005, False)])
def test_pairs_count_from_the_better_one(make_run: MakeRun, error: float, is_near: bool) -> None:
    pairs = [pair("rr-clarc", "p-clarc", "balanced_accuracy_biased", -0.01, stderr=error)]
    results = load_results(make_run(paired=pairs, change=changed("p-clarc", "balanced_accuracy_biased", 0.88)))
    assert (marked(results, "balanced_accuracy_biased").get("rr-clarc") == "near") is is_near
    assert (
        "There is no clear difference (within one standard error) to the best" in write_verdict(results).beside
    ) is is_near


def test_pairs_of_another_metric_do_not_decide(make_run: MakeRun) -> None:
    # 0.049 behind with an error of 0.05: near in plain accuracy, where that was paired, and in nothing else
    results = load_results(make_run(paired=[pair("rr-clarc", "p-clarc", "accuracy_biased", 0.049, stderr=0.05)]))
    assert marked(results, "accuracy_biased")["p-clarc"] == "near"
    assert "p-clarc" not in marked(results, "balanced_accuracy_biased")


def test_equals_are_named_too(make_run: MakeRun) -> None:
    results = load_results(make_run(change=changed("p-clarc", "balanced_accuracy_biased", 0.871)))
    assert "no clear difference to P-ClArC and A-ClArC (within" in write_verdict(results).beside


def test_the_verdict_says_that_the_best_breaks_the_rule(make_run: MakeRun) -> None:
    broken = SELECTION | {"a-clarc": choice(None, "has no strength to choose", objection="is too weak")}
    better = changed("a-clarc", "balanced_accuracy_biased", 0.95)
    run = make_run(selection=broken, change=better)
    told = write_verdict(load_results(run)).beside.replace("\N{NO-BREAK SPACE}", " ")
    assert "is A-ClArC (95.0 %), which breaks the selection rule." in told


def test_the_best_left_is_shown_with_its_breach(make_run: MakeRun) -> None:
    broken = SELECTION | {"a-clarc": choice(None, "has no strength to choose", objection="is too weak")}
    run = make_run(selection=broken, change=lambda rows: [row for row in rows if row.method != "rr-clarc"])
    told = write_verdict(load_results(run)).beside
    assert told.startswith("It is the best of 4 methods on images with the artifact, but breaks the selection rule.")


def test_a_method_without_strength_that_diverged_has_failed(make_run: MakeRun) -> None:
    selection = SELECTION | {"vanilla": choice(None, "has no strength to choose, but diverged", diverged=[None])}
    results = load_results(make_run(selection=selection))
    line = line_of(insertion_table(results), "Vanilla")
    assert (line.kind, line.detail) == ("failed", "failed: diverged")
    assert "Plain fine-tuning" not in write_verdict(results).beside


def test_a_strength_with_more_digits_than_the_table_is_found(make_run: MakeRun) -> None:
    strength = 10**0.5
    rows = [score("rr-clarc", "flip_rate", 0.0, strength=strength, chosen=0), score("rr-clarc", "flip_rate", 0.0)]
    run = make_run(change=lambda _: rows, selection={"rr-clarc": choice(None, "", diverged=[strength])})
    results = load_results(run)
    assert [results.has_diverged(row) for row in results.rows] == [True, False]


def test_numbers() -> None:
    assert write_value("flip_rate", 0.0614) == "6.1"
    assert write_value("probability_change", -0.02) == "\N{MINUS SIGN}2.0"
    assert write_value("probability_change", 0.02) == "+2.0"
    assert write_value("probability_change", -0.00001) == "0.0"
    assert write_value("tcav_sensitivity", 0.0012345) == "1.23"
    assert write_value("flip_rate", math.nan) == "\N{EN DASH}"
    assert write_stderr("flip_rate", math.nan) == write_stderr("flip_rate", None) == ""
    assert percent(0.5) == "50.0\N{NO-BREAK SPACE}%"


@given(st.floats(0, 1))
def test_a_share_is_written_to_a_twentieth_of_a_point(value: float) -> None:
    assert abs(float(write_value("flip_rate", value)) - 100 * value) <= 0.05 + 1e-9
