"""What a table must not say: that none or all of a few images is certain, or that one method alone is the best."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hansfree.evaluation.results import Row, load_results
from hansfree.report.numbers import write_stderr
from hansfree.report.tables import class_tables, insertion_table
from tests.report.conftest import MakeRun
from tests.report.test_tables import changed, line_of, marked
from tests.report.worlds import World


@pytest.mark.parametrize(("value", "interval"), [(0.0, "0.0\N{EN DASH}2.1"), (1.0, "97.9\N{EN DASH}100.0")])
def test_none_and_all_are_not_certain(make_run: MakeRun, value: float, interval: str) -> None:
    """Of 180 images: Wilson's interval, where the standard error would be 0.0."""
    change = changed("rr-clarc", "accuracy_worst_group", value)
    results = load_results(make_run(change=lambda rows: [replace(each, stderr=0.0) for each in change(rows)]))
    table = insertion_table(results)
    cells = dict(zip([c.metric for c in table.columns], line_of(table, "RR-ClArC").cells))
    assert (cells["accuracy_worst_group"].interval, cells["accuracy_worst_group"].stderr) == (interval, "")
    assert write_stderr("auroc_clean", 0.0) == "", "a spread of nought says nothing of an area either"


def test_one_method_alone_is_not_the_best(make_run: MakeRun) -> None:
    def only_one(rows: list[Row]) -> list[Row]:
        kept = ("original", "vanilla")
        return [row for row in rows if row.metric != "artifact_relevance" or row.method in kept]

    results = load_results(make_run(change=only_one))
    assert marked(results, "artifact_relevance") == {}
    assert marked(results, "tcav")


def test_a_class_that_is_always_right_has_an_interval_too(make_run: MakeRun) -> None:
    """Sixty images of keratosis."""

    def perfect(row: Row) -> Row:
        is_it = (row.method, row.metric, row.group) == ("rr-clarc", "sensitivity_clean", 2)
        return replace(row, value=1.0, stderr=0.0) if is_it else row

    parts = World().parts()
    rows = parts["change"]([])
    results = load_results(make_run(**parts | {"change": lambda _: list(map(perfect, rows))}))
    clean, _ = class_tables(results, results.variant("rr-clarc"))
    cell = clean.lines[2].changes[0].after
    assert (cell.value, cell.interval, cell.stderr) == ("100.0", "94.0\N{EN DASH}100.0", "")
