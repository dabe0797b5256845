"""Whose model the verdict is on, and who is clearly better: beside it and as large."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hansfree.evaluation.results import Row, load_results
from hansfree.reasons import Verdict, VerdictLevel
from hansfree.report import write_report
from hansfree.report.text import write_verdict
from tests.report.conftest import META, SELECTION, MakeRun, choice
from tests.report.pairing import pair
from tests.report.test_tables import changed

BETTER = (
    "A-ClArC is clearly better here: flips 2.0 % instead of 6.0 %, balanced accuracy with the artifact 95.0 % instead "
    "of 87.1 %."
)


def better(make_run: MakeRun, **given: Any) -> Path:
    """Return a run in which A-ClArC beats RR-ClArC."""

    def change(rows: list[Row]) -> list[Row]:
        fewer = changed("a-clarc", "flip_rate", 0.02)(rows)
        return changed("a-clarc", "balanced_accuracy_biased", 0.95)(fewer)

    return make_run(change=change, **given)


def subject(run: Path) -> str:
    return write_verdict(load_results(run)).subject.replace("\N{NO-BREAK SPACE}", " ")


def test_a_clearly_better_method_is_named_as_large_as_the_verdict(make_run: MakeRun) -> None:
    run = better(make_run)
    told = subject(run)
    assert told == f"The verdict is on RR-ClArC, the method that hansfree is built around. {BETTER}"
    page = write_report(run).read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")
    assert f"<p>{told}</p>" in page.partition('<section class="verdict')[2]
    assert "The best of 5 methods" not in page, "once is enough"
    assert write_verdict(load_results(run)).lines[-1].replace("\N{NO-BREAK SPACE}", " ") == told


def test_the_recommended_model_is_called_so(make_run: MakeRun) -> None:
    run = better(make_run, meta=META | {"recommended": "a-clarc"})
    assert subject(run) == "The verdict is on A-ClArC, which the run recommends."
    results = load_results(run)
    unknown = replace(results, verdicts=results.verdicts | {"a-clarc": Verdict(VerdictLevel.UNKNOWN)})
    assert write_verdict(unknown).subject == "The verdict is on A-ClArC, the run's best guess."


def test_better_means_by_intervals_and_usable(make_run: MakeRun) -> None:
    run = better(make_run)
    results = load_results(run)
    unclear = [
        pair("rr-clarc", "a-clarc", metric, value, stderr=0.1)
        for metric, value in (("flip_rate", 0.04), ("balanced_accuracy_biased", -0.08))
    ]
    assert "clearly" not in write_verdict(replace(results, paired=tuple(unclear))).subject
    broken = SELECTION | {"a-clarc": choice(None, "has no strength to choose", objection="is too weak")}
    assert "clearly" not in write_verdict(replace(results, selection=broken)).subject
