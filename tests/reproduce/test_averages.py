from __future__ import annotations

import math
from statistics import mean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansfree.report.numbers import MISSING
from hansfree.reproduce.averages import Average, as_results, average, cav_scores, chosen_scores, write_average
from hansfree.reproduce.keys import Facts
from tests.reproduce.examples import cav_row, path, row, scored

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
    rows = scored("rr-clarc", accuracy_clean=[0.9, math.nan])
    assert math.isnan(chosen_scores(rows).popitem()[1]["accuracy_clean"].value)


def test_only_chosen_final_scores_of_all_test_images_count() -> None:
    rows = [
        *path("rr-clarc", {1.0: (0.9, 0.5), 10.0: (0.8, 0.7)}, chosen=10.0),
        row("rr-clarc", "accuracy_biased", 0.1, split="val", strength=10.0),
        row("rr-clarc", "accuracy_biased", 0.2, epoch=3, strength=10.0),
        row("rr-clarc", "accuracy_biased", 0.3, group="class 1", strength=10.0),
        cav_row("signal", "cav_auc", 0.4),
    ]
    ((variant, found),) = chosen_scores(rows).items()
    assert (variant.method, variant.cav, variant.seed) == ("rr-clarc", "signal", None)
    assert {metric: mean.value for metric, mean in found.items()} == {"accuracy_clean": 0.8, "accuracy_biased": 0.7}
    assert found["accuracy_biased"].strength == 10.0


def test_variants_are_not_mixed() -> None:
    rows = [row("rr-clarc", "accuracy_biased", value, cav=cav) for cav, value in (("signal", 0.9), ("svm", 0.5))]
    assert {v.cav: s["accuracy_biased"].value for v, s in chosen_scores(rows).items()} == {"signal": 0.9, "svm": 0.5}


def test_a_cav_without_a_finite_score_has_none() -> None:
    rows = [cav_row("signal", "alignment_mean", 0.9), cav_row("lasso", "alignment_mean", math.nan)]
    assert list(cav_scores(rows, "alignment_mean")) == ["signal"]


def test_a_method_without_a_chosen_strength_stays_in_the_results() -> None:
    results = as_results(path("rr-clarc", {1.0: (0.5, 0.5)}, chosen=-1.0), Facts())
    (variant,) = results.methods()
    assert results.chosen(variant) == {}


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
