"""Best and worst cases: the largest changes, told with both answers, and in words where there are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hansfree.evaluation.results import Results
from hansfree.report.images import Cases, find_extremes, load_cases
from tests.report.conftest import META
from tests.report.pictured import case_arrays

RESULTS = Results(rows=(), meta=META, selection={}, heatmaps=None)


def cases_of(tmp_path: Path, **changed: Any) -> Cases:
    np.savez(tmp_path / "cases.npz", **case_arrays() | changed)
    found = load_cases(tmp_path / "cases.npz")
    assert found is not None
    return found


def test_no_file_is_no_case(tmp_path: Path) -> None:
    assert load_cases(tmp_path / "cases.npz") is None


def test_the_extremes_are_the_largest_changes_both_ways(tmp_path: Path) -> None:
    before, after = np.full(24, 0.5, np.float32), np.full(24, 0.5, np.float32)
    after[[3, 7, 11]] = [0.9, 0.7, 0.504]  # the last is too small to count
    after[[4, 8]] = [0.1, 0.3]
    arrays = {"true_class_biased/original": before, "true_class_biased/rr-clarc": after}
    cases = cases_of(tmp_path, **arrays, **{"counts/rr-clarc": np.array([800, 2, 2])})
    found = find_extremes(RESULTS, cases, "rr-clarc")
    assert found is not None
    assert [case.probability for case in found.best] == ["50.0\xa0% → 90.0\xa0%", "50.0\xa0% → 70.0\xa0%"]
    assert [case.probability for case in found.worst] == ["50.0\xa0% → 10.0\xa0%", "50.0\xa0% → 30.0\xa0%"]
    assert [case.truth for case in found.worst] == ["naevus", "naevus"]  # images 4 and 8
    assert "Of 800 test images" in found.summary


def test_the_answer_is_told_before_and_after(tmp_path: Path) -> None:
    answers = {"predicted_biased/original": np.full(24, 1), "predicted_biased/rr-clarc": np.arange(24) % 2}
    found = find_extremes(RESULTS, cases_of(tmp_path, **answers), "rr-clarc")
    assert found is not None
    assert {case.answer for case in found.best} <= {"melanoma → naevus", "stays melanoma"}
    assert len({case.answer for case in found.best}) == 2


def test_nothing_is_worst_where_nothing_became_worse(tmp_path: Path) -> None:
    cases = cases_of(tmp_path, **{"true_class_biased/original": np.zeros(24, np.float32)})
    found = find_extremes(RESULTS, cases, "rr-clarc")
    assert found is not None
    assert len(found.best) == 6
    assert found.worst == ()


def test_a_method_without_cases_has_no_extremes(tmp_path: Path) -> None:
    assert find_extremes(RESULTS, cases_of(tmp_path), "my-way") is None
