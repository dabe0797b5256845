from __future__ import annotations

import math
from statistics import mean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansfree.evaluation.results import Row
from hansfree.paper.aggregate import Average, Facts, Finding, average, paper_place, write_average
from hansfree.report.numbers import MISSING
from hansfree.report.tables import marks_of
from tests.paper.examples import VGG, cav_row, path, row, scored


def found_in(rows: list[Row], **facts: Any) -> Finding:
    return Finding(key=VGG, rows=rows, facts=Facts(**facts))


scores = st.lists(st.tuples(st.floats(0, 1), st.floats(0.001, 0.2)), min_size=2, max_size=6)


@given(scores)
def test_the_mean_has_two_errors(pairs: list[tuple[float, float]]) -> None:
    rows = [row("vanilla", "accuracy_clean", value, stderr=e, seed=seed) for seed, (value, e) in enumerate(pairs)]
    (found,) = average(rows, lambda r: r.method).values()
    values, errors = zip(*pairs)
    assert found.value == pytest.approx(mean(values))
    assert found.spread == pytest.approx(stdev(values), abs=1e-12)
    assert found.stderr == pytest.approx(math.sqrt(mean(e * e for e in errors)))
    assert found.error == pytest.approx(math.sqrt(mean(e * e for e in errors) + stdev(values) ** 2 / len(values)))


def test_equal_repeats_do_not_make_the_error_of_the_images_smaller() -> None:
    rows = [row("vanilla", "accuracy_clean", 0.8, stderr=0.04, seed=seed) for seed in range(4)]
    (found,) = average(rows, lambda r: r.method).values()
    assert (found.error, found.repeats) == (pytest.approx(0.04), 4)


def test_one_repeat_has_no_spread() -> None:
    (found,) = average([row("vanilla", "accuracy_clean", 0.8)], lambda r: r.method).values()
    assert found.spread is None
    assert found.error == found.stderr == pytest.approx(0.01)


def test_a_repeat_that_failed_is_not_left_out() -> None:
    finding = found_in(scored("rr-clarc", accuracy_clean=[0.9, math.nan]))
    assert math.isnan(finding.by_method["rr-clarc"]["accuracy_clean"].value)


def test_only_chosen_final_scores_of_all_test_images_count() -> None:
    rows = [
        *path("rr-clarc", {1.0: (0.9, 0.5), 10.0: (0.8, 0.7)}, chosen=10.0),
        row("rr-clarc", "accuracy_biased", 0.1, split="val", strength=10.0),
        row("rr-clarc", "accuracy_biased", 0.2, epoch=3, strength=10.0),
        row("rr-clarc", "accuracy_biased", 0.3, group=1, strength=10.0),
        cav_row("signal", "cav_auc", 0.4),
    ]
    ((variant, found),) = found_in(rows).chosen.items()
    assert (variant.method, variant.cav, variant.seed) == ("rr-clarc", "signal", None)
    assert {metric: mean.value for metric, mean in found.items()} == {"accuracy_clean": 0.8, "accuracy_biased": 0.7}
    assert found["accuracy_biased"].strength == 10.0


def test_variants_are_not_mixed_and_the_first_stands_for_its_method() -> None:
    rows = [row("rr-clarc", "accuracy_biased", value, cav=cav) for cav, value in (("signal", 0.9), ("svm", 0.5))]
    finding = found_in(rows)
    assert {v.cav: s["accuracy_biased"].value for v, s in finding.chosen.items()} == {"signal": 0.9, "svm": 0.5}
    assert finding.by_method["rr-clarc"]["accuracy_biased"].value == 0.9


def test_a_cav_without_a_finite_score_has_none() -> None:
    rows = [cav_row("signal", "alignment_mean", 0.9), cav_row("lasso", "alignment_mean", math.nan)]
    assert list(found_in(rows).cavs("alignment_mean")) == ["signal"]


def test_a_method_without_a_chosen_strength_stays_in_the_results() -> None:
    results = found_in(path("rr-clarc", {1.0: (0.5, 0.5)}, chosen=-1.0)).results()
    (variant,) = results.methods()
    assert results.chosen(variant) == {}


@pytest.mark.parametrize("order", [("rr-clarc", "a-clarc"), ("a-clarc", "rr-clarc")])
def test_a_paired_lead_is_of_the_means_with_the_errors_of_pairs_and_seeds(order: tuple[str, str]) -> None:
    rows = [*scored("a-clarc", accuracy_biased=[0.7, 0.7]), *scored("rr-clarc", accuracy_biased=[0.8, 0.9])]
    paired, wanted = {order: {"accuracy_biased": (0.1, 0.03)}}, ("rr-clarc", "a-clarc", "accuracy_biased")
    assert found_in(rows, paired=paired).lead(*wanted) == pytest.approx((0.15, math.hypot(0.03, 0.05)))
    assert found_in(rows).lead(*wanted) is None
    assert found_in(rows[:2], paired=paired).lead(*wanted) is None


def test_all_methods_of_a_column_are_marked_by_the_same_error() -> None:
    rows = [r for m, v in (("a-clarc", 0.795), ("rrr", 0.796), ("rr-clarc", 0.8)) for r in scored(m, accuracy_biased=v)]
    pairs = {("rr-clarc", "a-clarc"): {"accuracy_biased": (0.005, 0.001)}}  # alone it would say: behind
    marks = marks_of(found_in(rows, paired=pairs).results(), "accuracy_biased")
    assert {v.method: m for v, m in marks.items()} == {"a-clarc": "near", "rrr": "near", "rr-clarc": "best"}


def test_methods_stand_in_the_papers_order() -> None:
    names = ["clean-trained", "new", "rr-clarc", "a-clarc", "p-clarc", "rrr", "vanilla", "original"]
    ordered = ["original", "vanilla", "rrr", "p-clarc", "a-clarc", "rr-clarc", "new", "clean-trained"]
    assert sorted(names, key=paper_place) == ordered


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (None, MISSING),
        (Average(math.nan, 0.1, None, 1), "NaN"),
        (Average(0.871, None, None, 1), "87.1"),
        (Average(0.871, 0.012, None, 1), "87.1 ± 1.2"),
        (Average(0.871, 0.012, 0.004, 3), "87.1 ± 1.2 (0.4)"),
    ],
)
def test_written(found: Average | None, text: str) -> None:
    assert write_average("accuracy_biased", found) == text
