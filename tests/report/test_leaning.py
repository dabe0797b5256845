"""What is said of an artifact and a class: what was measured, and no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hansfree.evaluation.results import Results, load_results
from hansfree.report.text import describe_setting
from tests.report.conftest import MakeRun
from tests.report.worlds import World

NATURAL = World((60, 7, 0))


def with_score(results: Results, metric: str, value: float) -> Results:
    rows = [
        replace(row, value=value) if (row.method, row.metric) == ("original", metric) else row for row in results.rows
    ]
    return replace(results, rows=tuple(rows))


def test_an_inserted_artifact_is_a_sign_where_it_pulls(make_run: MakeRun) -> None:
    results = load_results(make_run(**World().parts()))
    assert "plaster artifact, taken as a sign of “naevus”, corrected at" in describe_setting(results)
    away = describe_setting(with_score(results, "probability_change", -0.05))
    assert "taken as a sign" not in away
    assert "has the opposite effect: it makes “naevus” less probable, by 5.0 points." in away


@pytest.mark.parametrize(("tcav", "is_other"), [(0.35, True), (0.65, False)])
def test_of_a_natural_artifact_only_its_share_is_known(make_run: MakeRun, tcav: float, is_other: bool) -> None:
    told = describe_setting(with_score(load_results(make_run(**NATURAL.parts())), "tcav", tcav))
    assert "plaster artifact, most frequent in “naevus”, corrected at" in told
    assert "taken as a sign" not in told
    assert ("seems to have the opposite effect: TCAV is 35.0\N{NO-BREAK SPACE}%" in told) == is_other


def test_a_class_that_somebody_chose_need_not_have_it_most(make_run: MakeRun) -> None:
    counts = [
        {"set": "train", "class": name, "images": 100, "with_artifact": n}
        for name, n in (("naevus", 5), ("melanoma", 9))
    ]
    parts = NATURAL.parts()
    told = describe_setting(load_results(make_run(**parts | {"meta": parts["meta"] | {"counts": counts}})))
    assert "plaster artifact, looked for in “naevus”, corrected at" in told
