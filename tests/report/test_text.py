"""Sentences: every code has a template, and the verdict says what the scores show, in up to two sentences."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from hansfree.evaluation.results import Results, Row, Variant, load_results, validated_rows
from hansfree.evaluation.verdict import judge_methods, shown_variant, status_of, why_no_model
from hansfree.reasons import Improvement, Reason, ReasonCode, Verdict, VerdictInputs, VerdictLevel
from hansfree.report.notebook import write_two_sentences
from hansfree.report.numbers import percent
from hansfree.report.tables import marks_of
from hansfree.report.text import (
    LEVEL_TITLES,
    describe_loss,
    describe_others,
    describe_reason,
    describe_rejection,
    describe_relevance,
    describe_rule,
    describe_setting,
    write_verdict,
)
from tests.report.conftest import (
    COUNTS,
    META,
    POOR,
    RULE_BROKEN,
    WORLD_SELECTION,
    MakeRun,
    World,
    changed,
    choice,
    pair,
    with_others,
    without,
)
from tests.report.conftest import SELECTION as MADE_UP

RESULTS = Results(rows=(), meta={"class_names": ["naevus", "melanoma"]}, selection={}, heatmaps=None)
CLEAR = Improvement(flips=(-0.46, -0.38), flips_p=0.001, accuracy=(0.10, 0.16))
GOOD = VerdictInputs(flips=(0.57, 0.15), over_original=CLEAR)
WORLD = World()
RICH, NONE = World((80, 60, 30)), World((0, 0, 0))
LOGITS = WORLD.logits(2.5, 0.5)
BROKEN = {"rr-clarc": choice(10.0, diverged=[10.0])}

LOST = Reason(ReasonCode.NEVER_ANSWERS, {"labels": [1]})
EFFECT = {**COUNTS, "share": 0.1, "effect": 0.19, "original": 2.0}
RULE = {"budget": 0.125, "class_budgets": {"1": 0.1}, "share": 0.1, "uncounted": [0]}
REASONS: list[tuple[ReasonCode, dict[str, Any], str]] = [
    (ReasonCode.NOT_FINITE, {}, "its numbers are not finite"),
    (ReasonCode.NO_MODEL, {"selection": Reason(ReasonCode.NO_CANDIDATE)}, "no candidate was trained"),
    (ReasonCode.NO_RESULT, {}, "it has no usable result"),
    (ReasonCode.INSERTION_DIFFERS, {}, "the inserted artifact is unlike the one in the labelled images"),
    (ReasonCode.CHANCE_LEVEL, {"accuracy": 0.333}, "is at chance level (33.3 %)"),
    (ReasonCode.LOST_CLASS, {"classes": [0, 1]}, "never predicts “naevus” and “melanoma”, which the original"),
    (ReasonCode.REJECTED_ON_VALIDATION, {"rejection": LOST}, "on validation images it never answers melanoma"),
    (ReasonCode.RULE_BROKEN, {}, "it breaks the selection rule"),
    (
        ReasonCode.CLEAN_BUDGET,
        {"drop": 0.051, "stderr": 0.01, "budget": 0.02},
        "it loses 5.1 ± 1.0 points of balanced accuracy on test images without the artifact, and 2 are allowed",
    ),
    (
        ReasonCode.CLASS_BUDGET,
        {"label": 1, "drop": 0.051, "stderr": 0.01, "budget": 0.02},
        "it loses 5.1 ± 1.0 points of its sensitivity to “melanoma”",
    ),
    (ReasonCode.STRONGER_EFFECT, {"before": 0.026, "after": 0.066}, "further towards its class than before: that"),
    (ReasonCode.STRONGER_EFFECT, {"before": 0.02, "after": -0.3}, "away from its class"),
    (ReasonCode.STRONGER_EFFECT, {"before": 0.02, "after": -0.3}, "by \N{MINUS SIGN}30.0 points instead of +2.0"),
    (ReasonCode.MORE_FALSE_ALARMS, {"before": 0.12, "after": 0.155}, "with it, 15.5 % of the images of other classes"),
    (ReasonCode.MORE_FALSE_ALARMS, {"before": None, "after": None}, "n/a of the images"),
    (ReasonCode.FINE_TUNING_SUFFICES, {}, "Plain fine-tuning (Vanilla) alone achieves all or part"),
    (ReasonCode.DIVERGED, {}, "diverged"),
    (ReasonCode.NEVER_ANSWERS, {"labels": [0, 1]}, "never answers naevus, melanoma"),
    (ReasonCode.CLEAN_DROP, {"drop": 0.1, "budget": 0.02}, "loses more than 2 points on clean images"),
    (ReasonCode.CLASS_DROP, {"label": 1, "drop": 0.1, "budget": 0.1}, "more than 10 points of melanoma on"),
    (ReasonCode.NO_BIASED_IMAGE, {}, "no biased validation image"),
    (ReasonCode.NO_CANDIDATE, {}, "no candidate was trained"),
    (
        ReasonCode.NONE_ADMISSIBLE,
        {"rejections": [LOST, Reason(ReasonCode.DIVERGED), LOST]},
        "no strength is admissible: diverged; never answers melanoma",
    ),
    (ReasonCode.NO_STRENGTH, {}, "has no strength to choose"),
    (ReasonCode.NO_STRENGTH_REJECTED, {"rejection": LOST}, "no strength to choose, but never answers melanoma"),
    (ReasonCode.ONLY_ADMISSIBLE, {**COUNTS}, "the only admissible strength (0 rejected)"),
    (ReasonCode.BEST_ON_VALIDATION, {**COUNTS}, "best of 3 admissible strengths (0 rejected)"),
    (
        ReasonCode.WITHIN_ONE_STDERR,
        {**COUNTS, "accuracy": 0.69, "best": 0.7},
        "weakest of 3 admissible strengths within one standard error of the best (69.0 %, the best has 70.0 %) (0 rej",
    ),
    (ReasonCode.EFFECT_BELOW_SHARE, EFFECT, "weakest that leaves at most 10 % of the effect, of 3 admissible: adding"),
    (ReasonCode.EFFECT_BELOW_SHARE, EFFECT, "moves the log-odds by 0.19 instead of 2 (mean, to first order) (0 rejec"),
    (ReasonCode.SMALLEST_EFFECT, EFFECT, "no strength leaves at most 10 % of the effect; smallest of 3 admissible"),
    (ReasonCode.BEST_BIASED_ACCURACY, {**COUNTS}, "best biased accuracy of 3 strengths (0 rejected)"),
    (
        ReasonCode.BEST_BY_EVIDENCE,
        {"candidates": 2, "evidence": "association", "effect": 0.19, "original": 2.0},
        "best of 2 strengths by association on validation images (effect 0.19 instead of 2)",
    ),
    (ReasonCode.NO_BETTER_THAN_ORIGINAL, {}, "no strength is better than the original model on validation images"),
    (ReasonCode.TRAINING_FAILED, {"errors": ["The loss is nan", "Too few"]}, "The loss is nan; Too few"),
    (ReasonCode.BALANCED_RULE, RULE, "on biased validation images, among heads that lose at most 12.5 points on clean"),
    (ReasonCode.BALANCED_RULE, RULE, "on clean ones, at most 10 of melanoma, are finite and still answer every class"),
    (ReasonCode.BALANCED_RULE, RULE, "every class; naevus has too few of them to count"),
    (ReasonCode.ONE_STANDARD_ERROR_RULE, RULE, "images is within one standard error of the best, among heads that"),
    (ReasonCode.DERIVATIVE_RULE, RULE, "too few biased validation images to choose by accuracy), or else the smallest"),
    (ReasonCode.PAPER_RULE, RULE, "whatever is lost on clean ones (the paper's rule)"),
    (
        ReasonCode.PAIRS_USED,
        {"pairs": 1200, "unpaired": 18},
        "trained on 1,200 images, each without and with the artifact, and on 18 without a counterfactual",
    ),
    (ReasonCode.PAIRS_USED, {"pairs": 9, "unpaired": 0}, "It was trained on 9 images, each without and with the art"),
    (
        ReasonCode.EMPTY_GROUPS,
        {"only_with": [], "only_without": [1, 2]},
        "No training image of class 1, 2 has the artifact. DFR balances the groups that are there",
    ),
    (ReasonCode.EMPTY_GROUPS, {"only_with": [2], "only_without": []}, "Every training image of class 2 has the artif"),
    (
        ReasonCode.GATE_RATE,
        {"intended": 0.05, "rates": {"without": (0.04, 50), "with": (0.9, 1000)}},
        "The gate fires on 4.0 % of 50 test images without the artifact and 90.0 % of 1,000 test images with the "
        "artifact; it was set for 5 % of the clean training images",
    ),
    (ReasonCode.SHARED_DONORS, {"part": "test", "count": 3}, "The test split has 3 images with the artifact, too few"),
    (ReasonCode.TRAINED_ON_TRANSPLANTS, {"kind": "region"}, "judged by (the pixels where it was found), with other im"),
    (ReasonCode.TCAV_REFITTED, {}, "refitted to the corrected network, as all of its layers changed"),
]


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def test_every_code_has_a_template() -> None:
    assert {code for code, _, _ in REASONS} == set(ReasonCode)
    assert LEVEL_TITLES.keys() == set(VerdictLevel)


@pytest.mark.parametrize(("code", "values", "words"), REASONS)
def test_reasons(code: ReasonCode, values: dict[str, Any], words: str) -> None:
    assert words in plain(describe_reason(Reason(code, values), RESULTS.class_title))


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (GOOD, "at most half as many decisions"),
        (GOOD, "McNemar test must agree: p below 0.05)"),
        (GOOD, "loses at most 2 points, the sensitivity to “melanoma” at most 10 (beyond"),
        (replace(GOOD, over_vanilla=CLEAR), "than the original model and than plain fine-tuning (Vanilla)"),
        (replace(GOOD, flips_beyond_reference=(0.0, 0.1)), "at most 5 points more flips than a model trained on clean"),
        (VerdictInputs(over_original=Improvement(accuracy=(0.1, 0.16))), "more cannot be said where the artifact"),
        (VerdictInputs(), "no model is called corrected"),
    ],
)
def test_the_rule_says_what_can_be_applied(inputs: VerdictInputs, words: str) -> None:
    rule = describe_rule(inputs, budget=0.02, class_budgets={"melanoma": 0.1})
    assert words in rule
    assert ("Vanilla" in rule) == (inputs.over_vanilla is not None)


def load(make_run: MakeRun, world: World = WORLD, *, selection: dict = {}, meta: dict = {}, **logits: dict) -> Results:  # noqa: B006
    parts = world.parts(**logits)
    return load_results(make_run(**parts | {"selection": WORLD_SELECTION | selection, "meta": parts["meta"] | meta}))


def told(results: Results) -> str:
    return plain(" ".join(write_verdict(results).sentences))


def test_the_verdict_says_that_transplants_flatter_what_was_trained_on_them(make_run: MakeRun) -> None:
    caveat = asdict(Reason(ReasonCode.TRAINED_ON_TRANSPLANTS, {"kind": "region"}))
    results = load_results(make_run(selection={**MADE_UP, "rr-clarc": {**choice(10.0), "details": [caveat]}}))
    assert "trained on the kind of transplant that it is judged by" in " ".join(write_verdict(results).lines)


def with_pairs(results: Results, *pairs: Any) -> Results:
    """Replace single differences, and judge again."""
    keys = {(each.method, each.rival, each.metric) for each in pairs}
    kept = [each for each in results.paired if (each.method, each.rival, each.metric) not in keys]
    found = replace(results, paired=(*kept, *pairs))
    return replace(found, verdicts=judge_methods(found))


def constant(label: int) -> dict[str, np.ndarray]:
    return {name: np.eye(3)[np.full(len(logits), label)] for name, logits in LOGITS.items()}


def shifted(label: int, by: float) -> dict[str, np.ndarray]:
    return {name: logits + by * np.eye(3)[label] for name, logits in LOGITS.items()}


NAN = {name: np.full_like(logits, np.nan) for name, logits in LOGITS.items()}


def test_the_verdict(make_run: MakeRun) -> None:
    results = load_results(make_run())
    verdict = write_verdict(results)
    assert (verdict.failure, verdict.level, len(verdict.sentences)) == ("", VerdictLevel.CORRECTED, 2)
    assert told(results) == (
        "On 800 test images the timestamp artifact changes 6.0 % of the decisions after RR-ClArC instead of 56.0 % "
        "before. Balanced accuracy rises from 48.0 % to 87.1 % on images with the artifact, and stays about the same "
        "on images without it (92.1 % before, 91.6 % after)."
    )
    assert verdict.differences.startswith(
        "Differences on the same images, in points with 95 % intervals: flips \N{MINUS SIGN}50.0 "
        "(\N{MINUS SIGN}52.0 to \N{MINUS SIGN}48.0), balanced accuracy with the artifact +39.1 (+37.1 to +41.1), "
    )
    assert plain(verdict.beside) == (
        "It is the best of 5 methods on images with the artifact, with no clear difference to A-ClArC (within one "
        "standard error). Plain fine-tuning (Vanilla) alone: 47.0 % flips, 54.1 % balanced accuracy with the artifact. "
        "A model trained on clean data changes 1.5 % of its answers."
    )
    assert describe_setting(results) == (
        "A demo model and the timestamp artifact, taken as a sign of “melanoma”, layer features.9; "
        "4,000 training, 400 validation and 800 test images of 64 px."
    )


@pytest.mark.parametrize(
    ("metric", "change", "stderr", "words"),
    [
        ("balanced_accuracy_clean", -0.005, 0.01, "stays about the same on images without it (92.1 % before, 91.6 %"),
        ("balanced_accuracy_clean", -0.005, 0.001, "falls from 92.1 % to 91.6 % on images without it"),
        (None, 0, 0, "goes from 92.1 % to 91.6 % on images without it"),
        ("flip_rate", 0.0, 0.01, "6.0 % of the decisions after RR-ClArC, about as many as before (56.0 %)."),
    ],
)
def test_up_and_down_are_said_where_they_are_clear(
    make_run: MakeRun, metric: str | None, change: float, stderr: float, words: str
) -> None:
    results = load_results(make_run())
    results = (
        replace(results, paired=())
        if metric is None
        else with_pairs(results, pair("rr-clarc", "original", metric, change, stderr=stderr))
    )
    assert words in told(results)


@pytest.mark.parametrize(
    ("method", "value", "stderr", "words"),
    [
        ("p-clarc", 0.875, 0.01, "There is no clear difference (within one standard error) to the best of 5 methods"),
        ("p-clarc", 0.95, 0.05, "The best of 5 methods on images with the artifact is P-ClArC (95.0 %)."),
        ("a-clarc", 0.95, None, "is A-ClArC (95.0 %), which breaks the selection rule."),
        ("p-clarc", 0.871, None, "no clear difference to P-ClArC and A-ClArC (within"),
    ],
)
def test_the_verdict_names_the_best_method(
    make_run: MakeRun, method: str, value: float, stderr: float | None, words: str
) -> None:
    selection = MADE_UP | (RULE_BROKEN if method == "a-clarc" else {})
    run = make_run(change=changed(method, "balanced_accuracy_biased", value), selection=selection)
    results = load_results(run)
    if stderr is not None:
        unclear = pair("rr-clarc", "p-clarc", "balanced_accuracy_biased", 0.871 - value, stderr=stderr)
        results = replace(results, paired=(unclear,))
    assert words in plain(write_verdict(results).beside)
    assert "clearly better" not in write_verdict(results).subject


def test_the_best_that_breaks_the_rule_is_shown_with_that(make_run: MakeRun) -> None:
    run = make_run(selection=MADE_UP | RULE_BROKEN, change=without)
    assert ", but breaks the selection rule." in write_verdict(load_results(run)).beside


@pytest.fixture
def beaten(make_run: MakeRun) -> Results:
    """A-ClArC is clearly better than RR-ClArC."""

    def change(rows: list[Row]) -> list[Row]:
        fewer = changed("a-clarc", "flip_rate", 0.02)(rows)
        return changed("a-clarc", "balanced_accuracy_biased", 0.95)(fewer)

    return load_results(make_run(change=change))


def test_a_clearly_better_method_is_named(beaten: Results) -> None:
    verdict = write_verdict(beaten)
    assert plain(verdict.subject) == (
        "The verdict is on RR-ClArC, the method that hansfree is built around. A-ClArC is clearly better here: flips "
        "2.0 % instead of 6.0 %, balanced accuracy with the artifact 95.0 % instead of 87.1 %."
    )
    assert "The best of 5 methods" not in verdict.beside, "once is enough"
    assert verdict.lines[-1] == verdict.subject
    unclear = [pair("rr-clarc", "a-clarc", m, 0.05, stderr=0.1) for m in ("flip_rate", "balanced_accuracy_biased")]
    assert "clearly" not in write_verdict(replace(beaten, paired=tuple(unclear))).subject
    assert "clearly" not in write_verdict(replace(beaten, selection=MADE_UP | RULE_BROKEN)).subject


def test_the_recommended_model_is_called_so(beaten: Results) -> None:
    results = replace(beaten, meta=META | {"recommended": "a-clarc"})
    assert write_verdict(results).subject == "The verdict is on A-ClArC, which the run recommends."
    unknown = replace(results, verdicts=results.verdicts | {"a-clarc": Verdict(VerdictLevel.UNKNOWN)})
    assert write_verdict(unknown).subject == "The verdict is on A-ClArC, the run's best guess."


def test_what_fine_tuning_does_alone_is_no_correction(make_run: MakeRun) -> None:
    """Vanilla answers as RR-ClArC does: the gain over the original is large, and the method's own is none."""
    results = load(make_run, vanilla=LOGITS, rr_clarc=LOGITS)
    verdict = write_verdict(results)
    assert results.verdicts["vanilla"].level == VerdictLevel.CORRECTED, "it has only the original to beat"
    assert (verdict.title, verdict.level) == ("RR-ClArC", VerdictLevel.NOT_CORRECTED)
    assert [reason.code for reason in results.verdicts["rr-clarc"].reasons] == [ReasonCode.FINE_TUNING_SUFFICES]
    assert verdict.lines[0].startswith("Not corrected. On 310 test images the plaster artifact changes")
    assert verdict.lines[1:] == (verdict.why, verdict.loss.sentence, verdict.subject)


def test_a_vanilla_model_that_failed_need_not_be_beaten(make_run: MakeRun) -> None:
    verdict = write_verdict(load(make_run, vanilla=constant(0)))
    assert (verdict.level, verdict.why) == (VerdictLevel.CORRECTED, "")
    assert "than plain fine-tuning" not in verdict.rule


@pytest.mark.parametrize("world", [WORLD, RICH], ids=["inserted", "natural"])
def test_more_false_alarms_of_the_biased_class_are_not_a_correction(make_run: MakeRun, world: World) -> None:
    results = load(make_run, world)
    assert write_verdict(results).level in (VerdictLevel.CORRECTED, VerdictLevel.PARTLY_CORRECTED)
    worse = with_pairs(results, pair("rr-clarc", "original", "specificity_biased", -0.05))
    assert write_verdict(worse).level == VerdictLevel.NOT_CORRECTED
    spared = [row for row in results.rows if (row.metric, row.group) == ("specificity_biased", 0) and row.chosen]
    alarms = {row.method: 1 - row.value for row in spared}
    values = {"before": alarms["original"], "after": alarms["rr-clarc"]}
    assert worse.verdicts["rr-clarc"].reasons == (Reason(ReasonCode.MORE_FALSE_ALARMS, values),)


@pytest.mark.parametrize(("flips", "level"), [(0.030, VerdictLevel.AS_REFERENCE), (0.060, VerdictLevel.CORRECTED)])
def test_the_reference_model_is_the_mark_to_reach(make_run: MakeRun, flips: float, level: VerdictLevel) -> None:
    """That model flips 1.5 %; 1.5 points more are within the margin, interval and all, and 4.5 are not."""
    verdict = write_verdict(load_results(make_run(change=changed("rr-clarc", "flip_rate", flips))))
    assert verdict.level == level
    assert verdict.headline == f"{LEVEL_TITLES[level].capitalize()}."


@pytest.mark.parametrize(
    ("logits", "selection", "status", "words"),
    [
        (LOGITS, {}, "method", ""),
        (NAN, BROKEN, "failed", "its numbers are not finite"),
        (NAN, {}, "chance", "its balanced accuracy on images without the artifact is at chance level (0.0"),
        (constant(0), {}, "chance", "its balanced accuracy on images without the artifact is at chance level (33.3"),
        (constant(0), BROKEN, "failed", "its numbers are not finite"),
        # far above chance level, and flips least of all: only the classes tell
        (shifted(2, -50), {}, "collapsed", "it never predicts “keratosis”, which the original model does"),
        (
            LOGITS,
            {"rr-clarc": choice(None, rejection=Reason(ReasonCode.CLASS_DROP, {"label": 2, "budget": 0.02}))},
            "method",
            "on validation images it loses more than 2 points of keratosis",
        ),
    ],
)
def test_models_that_must_not_be_used(
    make_run: MakeRun, logits: dict, selection: dict, status: str, words: str
) -> None:
    """Another is shown in its place, and judged by what it did itself."""
    results = load(make_run, rr_clarc=logits, selection=selection)
    variant = results.variant("rr-clarc")
    assert variant is not None
    assert status_of(results, variant) == status
    assert plain(describe_rejection(results, variant)).startswith(words)
    verdict = write_verdict(results)
    assert (results.verdicts["rr-clarc"].level == VerdictLevel.UNUSABLE) == bool(words)
    assert all((variant in marks_of(results, metric)) <= (status == "method") for metric in ("flip_rate", "tcav"))
    if status != "method":
        assert (verdict.title, verdict.failure, verdict.level) == ("A-ClArC", "", VerdictLevel.CORRECTED)
        assert verdict.lines[0].startswith("Do not use this model (RR-ClArC): ")
        assert verdict.lines[1].startswith("A-ClArC: corrected. On 310 test images")
        assert verdict.lines[-1] == "The verdict is on A-ClArC, the best of the others on validation images."


def test_a_class_that_the_original_never_predicts_is_not_lost(make_run: MakeRun) -> None:
    results = load(make_run, original=shifted(2, -50), rr_clarc=shifted(2, -50))
    assert describe_rejection(results, results.variant("rr-clarc")) == ""  # type: ignore[arg-type]


def test_the_budget_counts_beyond_the_error(make_run: MakeRun) -> None:
    results = load(make_run, rr_clarc=WORLD.logits(1.2, 0.5))
    variant = results.variant("rr-clarc")
    assert variant is not None
    why = describe_rejection(results, variant)
    assert "points of balanced accuracy on test images without the artifact, and 2 are allowed" in why
    assert write_verdict(results).failure == f"Do not use this model (RR-ClArC): {why}."
    assert describe_rejection(replace(results, meta=results.meta | {"budget": 0.9}), variant) == ""
    for error, is_allowed in ((0.001, False), (0.5, True)):  # image by image the difference may be certain, or not
        paired = (pair("rr-clarc", "original", "balanced_accuracy_clean", -0.05, stderr=error),)
        assert (describe_rejection(replace(results, paired=paired), variant) == "") is is_allowed


def test_the_budget_of_a_class_counts_beyond_the_error(make_run: MakeRun) -> None:
    results = load(make_run, rr_clarc=shifted(2, -1.5), meta={"budget": 0.9})
    variant = results.variant("rr-clarc")
    assert variant is not None
    assert describe_rejection(results, variant) == ""
    lost = {each.group: each for each in results.paired_classes if each.method == "rr-clarc"}[2]
    for extra in (-0.01, 0.01):
        budgets = {"1": 0.0, "2": -lost.value - lost.stderr + extra}
        why = describe_rejection(replace(results, meta=results.meta | {"class_budgets": budgets}), variant)
        assert ("of its sensitivity to “keratosis”" in why) == (extra < 0)
    unpaired = replace(results, meta=results.meta | {"class_budgets": {"2": 0.01}}, paired_classes=())
    assert "of its sensitivity to “keratosis”" in describe_rejection(unpaired, variant)


def test_a_method_without_model_is_told_with_its_reason(make_run: MakeRun) -> None:
    reason = Reason(ReasonCode.NONE_ADMISSIBLE, {"rejections": [Reason(ReasonCode.NEVER_ANSWERS, {"labels": [2]})]})
    rows = [row for row in WORLD.run() if row.method != "rr-clarc"]
    parts = WORLD.parts() | {
        "change": lambda _: rows,
        "selection": WORLD_SELECTION | {"rr-clarc": choice(None, reason)},
    }
    results = load_results(make_run(**parts))
    words = "no strength is admissible: never answers keratosis"
    assert write_verdict(results).warning == f"Do not use this model (RR-ClArC): {words}."
    assert why_no_model(results, "rr-clarc") == Reason(ReasonCode.NO_MODEL, {"selection": reason})
    without = {name: each for name, each in WORLD_SELECTION.items() if name != "rr-clarc"}
    verdict = write_verdict(replace(results, selection=without))
    assert (verdict.warning, verdict.failure, verdict.title) == ("", "", "A-ClArC")


def test_where_no_model_can_be_used_all_are_named(make_run: MakeRun) -> None:
    names = ("vanilla", "p_clarc", "a_clarc", "rr_clarc")
    verdict = write_verdict(load(make_run, **dict.fromkeys(names, constant(1))))
    assert verdict.failure.startswith(
        "Do not use Vanilla, P-ClArC, A-ClArC and RR-ClArC. Of each: its balanced accuracy "
    )
    assert verdict.sentences == ("No method has a usable result on the test images.",)
    assert verdict.headline == ""


def test_the_verdict_is_on_the_recommended_model(make_run: MakeRun) -> None:
    """A fault of RR-ClArC is no warning then: it is not the one to use."""
    advice = ["Recommended: p-clarc, by the accuracy.", "It is no better."]
    meta = {"recommended": "p-clarc", "advice": advice}
    verdict = write_verdict(load(make_run, rr_clarc=shifted(1, -50), meta=meta))
    assert (verdict.title, verdict.failure, verdict.warning) == ("P-ClArC", "", "")
    assert (verdict.advice, verdict.is_advised_against) == (tuple(advice), False)


def test_validation_images_choose_whom_to_show(make_run: MakeRun) -> None:
    """P-ClArC is the better one on validation images; that A-ClArC wins on test images must not count."""
    results, rows = load(make_run, rr_clarc=constant(0)), WORLD.run(rr_clarc=constant(0))
    better = [replace(row, value=0.99) if (row.method, row.split) == ("p-clarc", "val") else row for row in rows]
    for given, title in ((rows, "A-ClArC"), (better, "P-ClArC")):
        assert write_verdict(replace(results, validated=validated_rows(given))).title == title


@pytest.mark.parametrize("world", [POOR, NONE], ids=["few", "none"])
def test_where_it_cannot_be_known_no_correction_is_claimed(make_run: MakeRun, world: World) -> None:
    results = load(make_run, world)
    verdict = write_verdict(results)
    assert (verdict.level, verdict.title, len(verdict.sentences)) == (VerdictLevel.UNKNOWN, "RR-ClArC", 2)
    assert told(results).startswith("How often the model is right on images with the artifact would show whether")
    assert "on images with the artifact," not in told(results)
    assert "best of" not in verdict.beside
    assert ("TCAV sensitivity (mean size of the derivative" in verdict.differences) == (world is POOR)


def with_score(results: Results, metric: str, value: float) -> Results:
    key = ("original", metric)
    rows = (replace(row, value=value) if (row.method, row.metric) == key else row for row in results.rows)
    return replace(results, rows=tuple(rows))


@pytest.mark.parametrize(
    ("world", "metric", "value", "words", "opposite"),
    [
        (WORLD, "probability_change", 0.3, "taken as a sign of “naevus”", ""),
        (WORLD, "probability_change", -0.05, "biased class “naevus”", "it makes “naevus” less probable, by 5.0 points"),
        (POOR, "tcav", 0.35, "biased class “naevus”", "seems to have the opposite effect: TCAV is 35.0 %"),
        (POOR, "tcav", 0.65, "biased class “naevus”", ""),
    ],
)
def test_the_setting_says_how_the_artifact_goes_with_the_class(
    make_run: MakeRun, world: World, metric: str, value: float, words: str, opposite: str
) -> None:
    text = plain(describe_setting(with_score(load(make_run, world), metric, value)))
    assert f"plaster artifact, {words}, layer features.9;" in text
    assert opposite in text
    assert ("opposite" in text) == bool(opposite)
    n_test = "310 test" if world is WORLD else "310 clean test and 67 biased test"
    assert f"{n_test} images" in text


def answering(changes: dict[int, tuple[int, int]], world: World = WORLD) -> dict[str, np.ndarray]:
    """Return RR-ClArC's logits, with so many more and so many fewer images of a class right than the original has."""
    logits, original = world.logits(2.5, 0.5), world.logits(2.5, 4.0)["clean"]
    clean = original.copy()
    for label, (more, fewer) in changes.items():
        is_right = original.argmax(1) == label
        wrong, right = (np.flatnonzero((world.labels == label) & (is_right == kind)) for kind in (False, True))
        clean[wrong[:more], label] = 20
        clean[right[:fewer], label] = -20
    return logits | {"clean": clean}


@pytest.mark.parametrize(
    ("changes", "clean", "label", "words"),
    [
        # the largest class wins as much as another one loses
        ({0: (9, 0), 1: (0, 3), 2: (0, 9)}, (160, 90, 60), 2, "Largest per-class drop: “keratosis”, (n = 60, signif"),
        ({1: (0, 1)}, (160, 90, 60), 1, "Largest per-class drop: “melanoma”, (n = 90, not significant)."),
        # six images lost and none won are beyond chance in one class alone (p = 0.03), and not in one of three
        ({2: (0, 6)}, (160, 90, 60), 2, "Largest per-class drop: “keratosis”, (n = 60, not significant)."),
        # three of 30 images are lost, and fourteen of 160
        ({0: (0, 14), 2: (0, 3)}, (160, 90, 30), 0, "Largest significant per-class drop: “naevus”, (n = 160, signif"),
        ({}, (160, 90, 60), None, "Without the artifact, no class has a lower sensitivity than before."),
        ({0: (0, 20)}, (160, 90, 12), 0, "(n = 160, significant). “keratosis”: n/a (too few test images)."),
    ],
)
def test_the_class_that_loses_most_is_named(
    make_run: MakeRun, changes: dict, clean: tuple[int, int, int], label: int | None, words: str
) -> None:
    world = World(clean=clean)
    results = load(make_run, world, rr_clarc=answering(changes, world))
    verdict = write_verdict(results)
    assert verdict.loss.sentence in verdict.lines
    text = plain(verdict.loss.sentence)
    if label is not None:
        rows = [results.of_classes(each, "sensitivity_clean")[label].value for each in results.methods()]
        change = f"sensitivity without the artifact {100 * rows[0]:.1f} % → {100 * rows[-1]:.1f} % "
        assert change in text
        text = text.replace(change, "")
        alone = [each for each in results.paired_classes if (each.method, each.group) == ("rr-clarc", label)]
        variant = shown_variant(results)
        assert variant is not None
        corrected_alone = describe_loss(replace(results, paired_classes=tuple(alone)), variant)
        assert ", significant)" in corrected_alone.sentence or changes == {1: (0, 1)}
        assert "significant)" not in describe_loss(replace(results, paired_classes=()), variant).sentence
    assert words in text
    assert verdict.loss.is_significant == (", significant)" in text)
    verdict = replace(verdict, failure="")
    with pytest.MonkeyPatch.context() as patch:  # models that must not be used have lost a class too
        patch.setattr("hansfree.report.notebook.write_verdict", lambda _: verdict)
        second = write_two_sentences(results, "rr-clarc")[1]
    assert second.endswith(f"; l{verdict.loss.sentence[1:]}") == verdict.loss.is_significant


def test_a_method_without_artifact_relevance_is_told_why(make_run: MakeRun) -> None:
    results = load_results(make_run())
    rows = [replace(row, n=96) for row in results.rows if row.metric == "artifact_relevance"]
    results = replace(results, rows=(*(r for r in results.rows if r.metric != "artifact_relevance"), *rows))
    assert "on the first 96 test images" in describe_relevance(results)
    assert "n/a" not in describe_relevance(results)
    kept = [row for row in results.rows if row not in rows or row.method not in ("rrr", "rr-clarc")]
    assert " RRR, RR-ClArC: n/a. These images have no masks" in describe_relevance(replace(results, rows=tuple(kept)))
    none = tuple(row for row in results.rows if row not in rows)
    assert describe_relevance(replace(results, rows=none)) == ""


def test_what_is_removed_or_kept_is_told_with_its_numbers(make_run: MakeRun) -> None:
    meta = META | {"removed": {"timestamp": 81.2, "lsb": 44.7}, "protected": ["<ink>", "hair"]}
    results = load_results(make_run(change=with_others, meta=meta))
    assert (
        "Corrections along a direction remove timestamp and lsb together and keep <ink> and hair; all others know "
        "timestamp only. Degrees to what is kept, 90 where they share nothing: timestamp at 81 and lsb at 45."
    ) in describe_setting(results)
    verdict = write_verdict(results)
    shares = f"changes {percent(0)} of the decisions instead of {percent(0.25)}."
    assert verdict.others == (
        f"Inserted into the same images, lsb (removed too) {shares} "
        f"Inserted into the same images, <ink> (kept) {shares} "
        "Not measured, as it cannot be inserted into test images: hair."
    )
    assert verdict.others in verdict.lines
    without = replace(shown_variant(results) or Variant("rr-clarc"), cav=None)
    assert "uses no direction: it was corrected for timestamp only." in describe_others(results, without)
