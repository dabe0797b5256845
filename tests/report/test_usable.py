"""Who must not be used, and that the page says so in red, before anything else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hansfree.evaluation.results import Results, load_results
from hansfree.evaluation.verdict import shown_variant, status_of, why_no_model
from hansfree.reasons import VerdictLevel
from hansfree.report import write_report
from hansfree.report.tables import insertion_table, marks_of
from hansfree.report.text import describe_reason, describe_rejection, write_verdict
from tests.report.conftest import MakeRun, choice
from tests.report.pairing import pair
from tests.report.test_page import text_of
from tests.report.worlds import SELECTION, World

WORLD = World()
GOOD = WORLD.logits(2.5, 0.5)


def load(make_run: MakeRun, *, selection: dict = SELECTION, meta: dict | None = None, **changed: dict) -> Results:
    given = {"selection": selection, "meta": WORLD.meta if meta is None else meta}
    return load_results(make_run(**WORLD.parts(**changed) | given))


def judged(results: Results, method: str) -> tuple[str, str]:
    variant = results.variant(method)
    assert variant is not None
    return status_of(results, variant), describe_rejection(results, variant)


def constant(label: int) -> dict[str, np.ndarray]:
    return {name: np.eye(3)[np.full(len(logits), label)] for name, logits in GOOD.items()}


def without_class(label: int) -> dict[str, np.ndarray]:
    answers = {name: logits.copy() for name, logits in GOOD.items()}
    for logits in answers.values():
        logits[:, label] -= 50
    return answers


def test_a_good_model_may_be_used(make_run: MakeRun) -> None:
    results = load(make_run)
    assert judged(results, "rr-clarc") == ("method", "")
    assert judged(results, "original") == ("reference", "")
    assert write_verdict(results).failure == ""


def test_a_nan_model(make_run: MakeRun) -> None:
    nan = {name: np.full_like(logits, np.nan) for name, logits in GOOD.items()}
    broken = SELECTION | {"rr-clarc": choice(10.0, "best", diverged=[10.0])}
    results = load(make_run, rr_clarc=nan, selection=broken)
    assert judged(results, "rr-clarc") == ("failed", "its numbers are not finite")
    verdict = write_verdict(results)
    assert verdict.warning == "Do not use this model (RR-ClArC): its numbers are not finite."
    assert "after A-ClArC" in verdict.sentences[0]
    assert (verdict.title, verdict.failure, verdict.level) == ("A-ClArC", "", VerdictLevel.CORRECTED), (
        "judged by itself"
    )


def test_a_nan_model_that_nobody_noticed_answers_nothing(make_run: MakeRun) -> None:
    nan = {name: np.full_like(logits, np.nan) for name, logits in GOOD.items()}
    kind, why = judged(load(make_run, rr_clarc=nan), "rr-clarc")
    assert kind == "chance"
    assert "0.0" in why


def test_a_constant_model(make_run: MakeRun) -> None:
    results = load(make_run, rr_clarc=constant(0))
    kind, why = judged(results, "rr-clarc")
    assert kind == "chance"
    assert why.startswith("its balanced accuracy on images without the artifact is at chance level (33.3")
    assert all(variant.method != "rr-clarc" for variant in marks_of(results, "flip_rate"))


def test_a_model_that_never_answers_one_class(make_run: MakeRun) -> None:
    """It is far above chance level, and flips least of all: only the classes tell."""
    results = load(make_run, rr_clarc=without_class(2))
    assert judged(results, "rr-clarc") == ("collapsed", "it never predicts “keratosis”, which the original model does")
    assert all(variant.method != "rr-clarc" for variant in marks_of(results, "balanced_accuracy_biased"))
    line = next(line for line in insertion_table(results).lines if line.title == "RR-ClArC")
    assert line.detail == "never predicts keratosis"


def test_a_class_that_the_original_never_answered_is_not_lost(make_run: MakeRun) -> None:
    results = load(make_run, original=without_class(2), rr_clarc=without_class(2))
    assert judged(results, "rr-clarc") == ("method", "")


def test_the_budget_counts_beyond_the_error(make_run: MakeRun) -> None:
    worse = WORLD.logits(1.2, 0.5)
    results = load(make_run, rr_clarc=worse)
    kind, why = judged(results, "rr-clarc")
    assert kind == "method"
    assert "points of balanced accuracy on test images without the artifact, and 2 are allowed" in why
    assert write_verdict(results).failure == f"Do not use this model (RR-ClArC): {why}."
    assert judged(replace(results, meta=results.meta | {"budget": 0.9}), "rr-clarc") == ("method", "")
    # image by image the difference may be certain, or not
    row = results.chosen(results.variant("original"))["balanced_accuracy_clean"]  # type: ignore[arg-type]
    for error, is_allowed in ((0.001, False), (0.5, True)):
        paired = (pair("rr-clarc", "original", row.metric, -0.05, stderr=error),)
        assert (judged(replace(results, paired=paired), "rr-clarc")[1] == "") is is_allowed


def test_the_budget_of_a_class_counts_beyond_the_error_where_one_is_given(make_run: MakeRun) -> None:
    worse = {name: logits.copy() for name, logits in GOOD.items()}
    for logits in worse.values():
        logits[:, 2] -= 1.5
    results = load(make_run, rr_clarc=worse)
    results = replace(results, meta=results.meta | {"budget": 0.9})
    assert judged(results, "rr-clarc") == ("method", "")
    lost = {each.group: each for each in results.paired_classes if each.method == "rr-clarc"}[2]
    for allowed in (-lost.value - lost.stderr - 0.01, -lost.value - lost.stderr + 0.01):
        guarded = replace(results, meta=results.meta | {"class_budgets": {"1": 0.0, "2": allowed}})
        expected = (
            f"it loses {-100 * lost.value:.1f} ± {100 * lost.stderr:.1f} points of its sensitivity to “keratosis” on "
            f"test images without the artifact, and {100 * allowed:g} are allowed"
        )
        assert judged(guarded, "rr-clarc")[1] == (expected if allowed < -lost.value - lost.stderr else "")
    unpaired = replace(results, meta=results.meta | {"class_budgets": {"2": 0.01}}, paired_classes=())
    assert "of its sensitivity to “keratosis”" in judged(unpaired, "rr-clarc")[1]


def test_a_method_without_strength_that_breaks_the_rule(make_run: MakeRun) -> None:
    objection = "loses more than 2 points, but on clean images"
    broken = SELECTION | {"rr-clarc": choice(None, "has no strength to choose", objection=objection)}
    results = load(make_run, selection=broken)
    told = f"on validation images it {objection}"
    assert judged(results, "rr-clarc") == ("method", told)


def test_a_class_that_is_in_the_way_is_called_by_its_name(make_run: MakeRun) -> None:
    """The rule knows numbers; whoever wrote a name into the run file looks for that."""
    objection = "loses more than 2 points of class 2 on clean images"
    broken = SELECTION | {"rr-clarc": choice(None, f"has no strength to choose, but {objection}", objection=objection)}
    run = make_run(**WORLD.parts() | {"selection": broken})
    assert judged(load_results(run), "rr-clarc")[1].endswith("it loses more than 2 points of keratosis on clean images")
    assert "class 2" not in text_of(write_report(run))
    reason = f"no strength is admissible: {objection}"
    none = replace(load_results(run), selection=SELECTION | {"rr-clarc": choice(None, reason)})
    assert (
        describe_reason(none, why_no_model(none, "rr-clarc"))
        == "no strength is admissible: loses more than 2 points of keratosis on clean images"
    )


def test_where_no_model_can_be_used_all_are_named(make_run: MakeRun) -> None:
    names = ("vanilla", "p_clarc", "a_clarc", "rr_clarc")
    verdict = write_verdict(load(make_run, **dict.fromkeys(names, constant(1))))
    assert verdict.failure.count("Do not use this model") == 4
    assert verdict.sentences == ("No method has a usable result on the test images.",)


def test_a_run_without_the_papers_method_is_no_failure(make_run: MakeRun) -> None:
    rows = [row for row in WORLD.run() if row.method != "rr-clarc"]
    selection = {name: told for name, told in SELECTION.items() if name != "rr-clarc"}
    run = make_run(**WORLD.parts() | {"change": lambda _: rows, "selection": selection})
    verdict = write_verdict(load_results(run))
    assert verdict.failure == ""
    assert "after A-ClArC" in verdict.sentences[0]


@pytest.mark.parametrize("changed", [constant(0), without_class(1)], ids=["constant", "lost class"])
def test_the_page_says_it_in_red_before_anything_else(make_run: MakeRun, changed: dict, tmp_path: Path) -> None:
    page = write_report(make_run(**WORLD.parts(rr_clarc=changed))).read_text(encoding="utf-8")
    assert page.index('<section class="verdict failed"') < page.index('<p class="failure">Do not use this model')
    assert page.index('<p class="failure">') < page.index("<h2>")


def test_the_page_is_about_the_recommended_model(make_run: MakeRun) -> None:
    """A fault of RR-ClArC is no warning then: nobody is told to use it."""
    advice = ["Recommended: p-clarc, by the accuracy.", "It is no better."]
    results = load(make_run, rr_clarc=without_class(1), meta=WORLD.meta | {"recommended": "p-clarc", "advice": advice})
    shown = shown_variant(results)
    assert shown is not None
    assert shown.method == "p-clarc"
    verdict = write_verdict(results)
    assert "after P-ClArC" in verdict.sentences[0]
    assert (verdict.failure, verdict.advice, verdict.is_advised_against) == ("", tuple(advice), False)


@pytest.mark.parametrize("recommended", ["p-clarc", None])
def test_the_advice_stands_under_the_verdict_and_is_red_where_no_model_is_to_be_used(
    make_run: MakeRun, recommended: str | None
) -> None:
    meta = WORLD.meta | {"recommended": recommended, "advice": ["Take", "<this>."]}
    page = write_report(make_run(**WORLD.parts() | {"meta": meta})).read_text(encoding="utf-8")
    section = page.partition('<section class="verdict')[2].partition("</section>")[0]
    assert section.rstrip().endswith('<p class="advice"><strong>Take</strong> &lt;this&gt;.</p>')
    assert section.startswith(" failed") == (recommended is None)
