"""A class that has too few images for any score has a line all the same, which says so."""

from __future__ import annotations

import pytest

from hansfree.evaluation.results import load_results
from hansfree.evaluation.verdict import shown_variant
from hansfree.report.tables import class_tables
from tests.report.conftest import MakeRun
from tests.report.worlds import CLASSES, World


@pytest.mark.parametrize("biased", [(15, 10, 10), (6, 1, 0)], ids=["one class", "all classes"])
def test_no_class_is_missing_without_a_word(make_run: MakeRun, biased: tuple[int, ...]) -> None:
    """Of 15 images of the biased class and 20 others, neither its sensitivity nor its specificity can be known."""
    results = load_results(make_run(**World(biased).parts()))
    _, table = class_tables(results, shown_variant(results))
    assert [line.title for line in table.lines] == list(CLASSES)
    own = table.lines[0]
    assert own.n == str(biased[0])
    assert all(change.unknown.startswith("n/a (n = ") for change in own.changes)
    assert f"there are {biased[0]}" in own.changes[0].reason
