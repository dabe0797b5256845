"""The verdict names the class that loses most by the correction: an average can rise while one class is given up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hansfree.evaluation.results import Results, load_results
from hansfree.evaluation.verdict import shown_variant
from hansfree.report import write_report
from hansfree.report.text import describe_loss, write_verdict
from tests.report.conftest import MakeRun
from tests.report.test_page import text_of
from tests.report.worlds import World

WORLD = World()


def answering(world: World, changes: dict[int, tuple[int, int]]) -> dict[str, np.ndarray]:
    """Return RR-ClArC's logits, with so many more and so many fewer images of a class right than the original has."""
    logits, original = world.logits(2.5, 0.5), world.logits(2.5, 4.0)["clean"]
    clean = original.copy()
    for label, (more, fewer) in changes.items():
        is_right = original.argmax(1) == label
        wrong, right = (np.flatnonzero((world.labels == label) & (is_right == kind)) for kind in (False, True))
        clean[wrong[:more], label] = 20
        clean[right[:fewer], label] = -20
    return logits | {"clean": clean}


def told(results: Results) -> str:
    shown = shown_variant(results)
    assert shown is not None
    return describe_loss(results, shown).replace("\N{NO-BREAK SPACE}", " ")


def load(make_run: MakeRun, changes: dict[int, tuple[int, int]], world: World = WORLD) -> Results:
    return load_results(make_run(**world.parts(rr_clarc=answering(world, changes))))


def sensitivities(results: Results, label: int) -> tuple[str, str]:
    rows = [results.of_classes(each, "sensitivity_clean")[label].value for each in results.methods()]
    return f"{100 * rows[0]:.1f} %", f"{100 * rows[-1]:.1f} %"


def test_a_clear_loss_is_named_with_its_numbers(make_run: MakeRun) -> None:
    """The largest class wins as much as another one loses."""
    results = load(make_run, {0: (9, 0), 1: (0, 3), 2: (0, 9)})
    before, after = sensitivities(results, 2)
    assert told(results) == (
        f"Largest per-class drop: “keratosis”, sensitivity without the artifact {before} → {after} (n = 60, "
        "significant)."
    )


def test_a_loss_that_may_be_chance_is_not_called_one(make_run: MakeRun) -> None:
    results = load(make_run, {1: (0, 1)})
    before, after = sensitivities(results, 1)
    assert told(results) == (
        f"Largest per-class drop: “melanoma”, sensitivity without the artifact {before} → {after} (n = 90, not "
        "significant)."
    )
    unpaired = replace(results, paired_classes=())
    assert told(unpaired) == told(results).replace(", not significant", "")


def test_of_many_classes_one_always_falls(make_run: MakeRun) -> None:
    """Six images lost and none won are beyond chance in one class alone (p = 0.03), and not in one of three."""
    results = load(make_run, {2: (0, 6)})
    (loss,) = [each for each in results.paired_classes if (each.method, each.group) == ("rr-clarc", 2)]
    assert loss.p == pytest.approx(2 * 0.5**6)
    assert told(results).endswith("(n = 60, not significant).")
    alone = replace(results, paired_classes=(loss,))
    assert told(alone).endswith("(n = 60, significant).")


def test_a_clear_loss_goes_before_a_larger_one_that_may_be_chance(make_run: MakeRun) -> None:
    """Three of 30 images are lost, and fourteen of 160."""
    world = World(clean=(160, 90, 30))
    results = load(make_run, {0: (0, 14), 2: (0, 3)}, world)
    losses = {each.group: (each.value, each.high) for each in results.paired_classes if each.method == "rr-clarc"}
    assert losses[2][0] < losses[0][0]
    assert losses[0][1] < 0 < losses[2][1]
    assert told(results).startswith("Largest significant per-class drop: “naevus”, sensitivity")


def test_nothing_is_lost(make_run: MakeRun) -> None:
    assert told(load(make_run, {})) == "Without the artifact, no class has a lower sensitivity than before."


def test_classes_that_cannot_be_known_are_named(make_run: MakeRun) -> None:
    """A rare disease is what medicine asks for."""
    results = load(make_run, {0: (0, 20)}, World(clean=(160, 90, 12)))
    assert told(results).endswith(" “keratosis”: n/a (too few test images).")


def test_without_scores_of_classes_nothing_is_said(make_run: MakeRun) -> None:
    results = load_results(make_run())
    assert told(results) == ""


def test_terminal_and_page_say_it(make_run: MakeRun) -> None:
    run = make_run(**WORLD.parts(rr_clarc=answering(WORLD, {2: (0, 9)})))
    results = load_results(run)
    verdict = write_verdict(results)
    assert verdict.loss.replace("\N{NO-BREAK SPACE}", " ") == told(results)
    assert verdict.loss in verdict.lines
    assert told(results) in text_of(write_report(run))
