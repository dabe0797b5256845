"""On which images artifact relevance is taken, and why a method has none."""

from __future__ import annotations

from dataclasses import replace

from hansfree.evaluation.results import Results, load_results
from hansfree.report.text import describe_relevance
from tests.report.conftest import MakeRun


def told(results: Results, *, without: tuple[str, ...] = ()) -> str:
    rows = [
        replace(row, n=96) if row.metric == "artifact_relevance" else row
        for row in results.rows
        if row.metric != "artifact_relevance" or row.method not in without
    ]
    return describe_relevance(replace(results, rows=tuple(rows)))


def test_a_method_without_the_score_is_told_why(make_run: MakeRun) -> None:
    results = load_results(make_run())
    assert "on the first 96 test images" in told(results)
    assert "n/a" not in told(results)
    assert " RRR, RR-ClArC: n/a. These images have no masks" in told(results, without=("rrr", "rr-clarc"))


def test_where_nobody_has_it_nothing_is_said(make_run: MakeRun) -> None:
    results = load_results(make_run())
    assert told(results, without=tuple(variant.method for variant in results.methods())) == ""
