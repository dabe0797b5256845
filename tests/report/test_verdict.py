"""What the verdict rests on beside the original model: fine-tuning alone, the pull of the artifact, and plain words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hansfree.evaluation.results import Results, load_results
from hansfree.evaluation.verdict import judge_methods
from hansfree.reasons import VerdictLevel
from hansfree.report import write_report
from hansfree.report.numbers import percent
from hansfree.report.text import write_verdict
from tests.report.conftest import MakeRun
from tests.report.pairing import pair
from tests.report.test_page import text_of
from tests.report.worlds import World

WORLD = World()


def load(make_run: MakeRun, world: World = WORLD, **changed: dict[str, np.ndarray]) -> Results:
    return load_results(make_run(**world.parts(**changed)))


def told(results: Results) -> str:
    return " ".join(write_verdict(results).sentences).replace("\N{NO-BREAK SPACE}", " ")


def with_pairs(results: Results, *pairs: object) -> Results:
    """Replace single differences, and rule anew."""
    keys = {(each.method, each.rival, each.metric) for each in pairs}  # type: ignore[attr-defined]
    kept = [each for each in results.paired if (each.method, each.rival, each.metric) not in keys]
    changed = replace(results, paired=(*kept, *pairs))  # type: ignore[arg-type]
    return replace(changed, verdicts=judge_methods(changed))


def test_what_fine_tuning_does_alone_is_no_correction(make_run: MakeRun) -> None:
    """Vanilla answers as RR-ClArC does: the gain over the original is large, and the method's own is none."""
    good = WORLD.logits(2.5, 0.5)
    results = load(make_run, vanilla=good, rr_clarc=good)
    verdict = write_verdict(results)
    assert results.verdicts["vanilla"].level == VerdictLevel.CORRECTED, "it has nobody to beat but the original"
    assert (verdict.title, verdict.level) == ("RR-ClArC", VerdictLevel.NOT_CORRECTED)
    assert verdict.why == "Plain fine-tuning (Vanilla) alone achieves all or part of the improvement."
    assert "Vanilla" in verdict.rule


def test_a_vanilla_model_that_failed_need_not_be_beaten(make_run: MakeRun) -> None:
    """One that always gives the same answer flips nothing at all."""
    constant = {name: np.eye(3)[np.zeros(len(each), dtype=int)] for name, each in WORLD.logits(2.5, 0.5).items()}
    verdict = write_verdict(load(make_run, vanilla=constant))
    assert (verdict.level, verdict.why) == (VerdictLevel.CORRECTED, "")
    assert "than plain fine-tuning" not in verdict.rule


def test_a_model_on_which_the_artifact_pulls_harder_is_not_corrected(make_run: MakeRun) -> None:
    """Fewer flips and more right answers, and yet the probability moves by 6.6 points instead of 2.6."""
    results = load(make_run)
    assert write_verdict(results).level == VerdictLevel.CORRECTED
    values = {"original": 0.026, "rr-clarc": 0.066}
    rows = tuple(
        replace(row, value=values[row.method]) if row.metric == "probability_change" and row.method in values else row
        for row in results.rows
    )
    harder = with_pairs(replace(results, rows=rows), pair("rr-clarc", "original", "probability_change", 0.04))
    verdict = write_verdict(harder)
    assert verdict.level == VerdictLevel.NOT_CORRECTED
    assert "probability changes by +6.6 points instead of +2.6." in verdict.why
    assert "pull of the artifact (probability change) +4.0 (+2.0 to +6.0)" in verdict.differences
    unclear = pair("rr-clarc", "original", "probability_change", 0.04, stderr=0.03)
    assert write_verdict(with_pairs(replace(results, rows=rows), unclear)).level == VerdictLevel.CORRECTED


@pytest.mark.parametrize("world", [WORLD, World((80, 60, 30))], ids=["inserted", "natural"])
def test_more_false_alarms_of_the_biased_class_are_not_a_correction(make_run: MakeRun, world: World) -> None:
    results = load(make_run, world)
    assert write_verdict(results).level in (VerdictLevel.CORRECTED, VerdictLevel.PARTLY_CORRECTED)
    worse = with_pairs(results, pair("rr-clarc", "original", "specificity_biased", -0.05))
    verdict = write_verdict(worse)
    assert verdict.level == VerdictLevel.NOT_CORRECTED
    spared = [row for row in results.rows if (row.metric, row.group) == ("specificity_biased", 0) and row.chosen]
    alarms = {row.method: percent(1 - row.value) for row in spared}
    before, after = alarms["original"], alarms["rr-clarc"]
    assert f"{after} of the images of other classes are predicted as that class instead of {before}." in verdict.why


@pytest.mark.parametrize(
    ("change", "stderr", "words"),
    [
        (-0.005, 0.01, "stays about the same on images without it (92.1 % before, 91.6 % after)"),
        (-0.005, 0.001, "falls from 92.1 % to 91.6 % on images without it"),
        (None, None, "goes from 92.1 % to 91.6 % on images without it"),
    ],
)
def test_up_and_down_are_said_where_they_are_clear(
    make_run: MakeRun, change: float | None, stderr: float, words: str
) -> None:
    results = load_results(make_run())
    if change is None:
        results = replace(results, paired=())
    else:
        results = with_pairs(results, pair("rr-clarc", "original", "balanced_accuracy_clean", change, stderr=stderr))
    assert words in told(results)


def test_as_many_flips_as_before_are_called_so(make_run: MakeRun) -> None:
    results = with_pairs(load_results(make_run()), pair("rr-clarc", "original", "flip_rate", 0.0))
    assert "changes 6.0 % of the decisions after RR-ClArC, about as many as before (56.0 %)." in told(results)


def test_the_terminal_says_what_the_page_says(make_run: MakeRun) -> None:
    good = WORLD.logits(2.5, 0.5)
    run = make_run(**WORLD.parts(vanilla=good, rr_clarc=good))
    lines = write_verdict(load_results(run)).lines
    assert lines[0].startswith("Not corrected. On 310 test images the plaster artifact changes")
    assert lines[0].count(". ") == 2, "the level and two sentences"
    assert lines[1] == "Plain fine-tuning (Vanilla) alone achieves all or part of the improvement."
    assert lines[2] == "Without the artifact, no class has a lower sensitivity than before."
    assert lines[3].startswith("The verdict is on RR-ClArC, the method that hansfree is built around.")
    assert " ".join(lines).replace("\N{NO-BREAK SPACE}", " ") in text_of(write_report(run))


def test_a_failure_has_no_level_on_the_terminal(make_run: MakeRun) -> None:
    constant = {name: np.eye(3)[np.zeros(len(each), dtype=int)] for name, each in WORLD.logits(2.5, 0.5).items()}
    broken, ours, _, subject = write_verdict(load(make_run, rr_clarc=constant)).lines
    assert broken.startswith("Do not use this model (RR-ClArC)")
    assert ours.startswith("A-ClArC: corrected. On 310 test images")
    assert subject == "The verdict is on A-ClArC, the best of the others on validation images."


def test_repeats_with_other_seeds_are_no_further_methods(make_run: MakeRun) -> None:
    """Of five methods, two more seeds each, and one of those seeds better than all."""
    results = load(make_run)
    beside = write_verdict(results).beside
    rows = list(results.rows)
    for seed, shift in ((1, 0.0), (2, 0.1)):
        again = (row for row in results.rows if row.method not in ("original", "clean-trained"))
        rows += [replace(row, seed=seed, value=min(1.0, row.value + shift)) for row in again]
    repeated = write_verdict(replace(results, rows=tuple(rows)))
    assert beside
    assert repeated.beside.replace(" · seed 0", "") == beside
    assert "seed 1" not in repeated.beside
