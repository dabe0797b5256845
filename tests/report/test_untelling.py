"""Scores that tell nobody best: marked, explained below the table, and muted."""

from __future__ import annotations

import pytest

from hansfree.evaluation.data_checks import WORST_GROUP
from hansfree.evaluation.results import load_results
from hansfree.report import write_report
from hansfree.report.tables import footnote_of, insertion_table, marks_of
from tests.report.conftest import META, MakeRun
from tests.report.test_page import text_of

GROUPS = "accuracy_worst_group"


@pytest.mark.parametrize("can_be_made", [True, False])
def test_the_worst_group_is_marked_best_only_where_all_groups_are_known(make_run: MakeRun, can_be_made: bool) -> None:
    claims = [{"name": WORST_GROUP, "can_be_made": can_be_made, "sentence": "Some are few."}]
    run = make_run(meta=META | {"claims": claims})
    results = load_results(run)
    assert bool(marks_of(results, GROUPS)) == can_be_made
    assert (footnote_of(results, GROUPS) is None) == can_be_made
    column = next(each for each in insertion_table(results).columns if each.metric == GROUPS)
    assert column.part == ("" if can_be_made else "of those known \N{DOUBLE DAGGER}")
    text = text_of(write_report(run))
    assert ("\N{DOUBLE DAGGER} Some groups have too few images (see" in text) != can_be_made
    assert "melanoma with artifact" in text, "which group it is stands in the cell"


def test_the_example_of_an_interval_is_one_of_the_table(make_run: MakeRun) -> None:
    run = make_run()
    example = insertion_table(load_results(run)).an_interval
    text = text_of(write_report(run))
    assert f"95 % intervals, such as {example}, are over images" in text
    assert text.count(example) > 1
