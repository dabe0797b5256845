"""Beyond the paper: all methods, directions and ways to refit the head against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, ClassVar

import numpy as np

from hansfree.corrections.training import check_solvable, tuning_for
from hansfree.errors import OptionError
from hansfree.experiments.subjects import BaseModels, Subject, subject_name
from hansfree.experiments.workspace import Plan
from hansfree.models import architecture_named, build_model
from hansfree.models.surgery import split
from hansfree.reproduce.figures import draw_tournament
from hansfree.reproduce.runner import (
    CORRECTED,
    TRAINED,
    Finding,
    Presentation,
    Reproduction,
    Words,
    describe_recipe,
    describe_weights,
    facts_of,
    key_of,
    setting_of,
)
from hansfree.reproduce.tables import write_tournament
from hansfree.results import Row
from hansfree.selection import BalancedRule
from hansfree.studies import BiasedData, Study
from hansfree.tournament import (
    APART,
    CANDIDATES,
    ELECTED,
    ENTRANTS,
    MEASURES,
    PAIRED,
    REFITS,
    RIVALS,
    Draw,
    DrawKind,
    Entrant,
    Match,
    Outcome,
    elect,
    judge_model,
    kind_of_draws,
    make_draws,
    model_named,
    paste_artifact,
    play,
)

_DRAWS = {
    "poisoned": "other images of the biased class carry the artifact, and both heads are trained anew",
    "natural": "four fifths of the training images, and both heads are trained anew",
    "whole": "each trains a biased model and a clean reference of its own, from other weights and in another order",
}
_MEANING = 2  # counted up when a draw or an entrant's name comes to mean something else: older results are not taken


class Tournament(Reproduction, name="tournament"):
    """Every entrant on every draw (``--repeats``), its strength chosen on validation images."""

    title = "Beyond the paper: better directions and more rivals, over several draws"
    entrants: ClassVar[Sequence[Entrant]] = RIVALS

    def check(self, study: Study, plan: Plan) -> None:
        """Refuse what a tournament does not take: all entrants have their own strengths and none is left out."""
        super().check(study, plan)
        if plan.left_out or plan.strengths or plan.grid != "own":
            raise OptionError("In a tournament all entrants play with their own strengths: leave these options out.")
        if plan.trained == "whole" and study.needs_root:
            raise OptionError("A draw of such images trains models of its own: use --train head, which takes seconds.")
        check_solvable(
            split(build_model(plan.model, classes=2), architecture_named(plan.model).layer, train=plan.corrected),
            advice="Give --corrected last.",
        )

    def examine(self, subject: Subject) -> Finding:
        """Let all entrants play on all draws; each result is kept."""
        names = [*APART, *(entrant.name for entrant in self.entrants)]
        numbers = range(subject.plan.repeats)
        data = _data(subject)
        stage = partial(_stage, kind_of_draws(subject.plan, data))
        missing = [n for n in numbers if not all(subject.run.has(stage(n, name)) for name in names)]
        for draw in make_draws(subject, data, missing):
            for name in subject.progress(names, total=len(names), label=f"draw {draw.number}"):
                subject.run.stage(stage(draw.number, name), partial(_judged, name, draw))
        matches = {name: _match(subject, [stage(n, name) for n in numbers]) for name in names}
        if all(name in matches for name in CANDIDATES):
            matches[ELECTED] = elect([matches[name] for name in CANDIDATES])
        labels = np.asarray(data.test_clean.labels)
        key, title = key_of(subject), subject_name(subject.study, subject.plan)
        return Finding(
            key=key,
            facts=facts_of(subject, data=data),
            rows=[row for name, match in matches.items() for row in _rows(title, name, match, labels)],
            notes={"matches": matches, "labels": labels},
        )

    def describe(self, subject: Subject, finding: Finding) -> Words:
        """Say what a draw is, and what its models learned from."""
        plan, pictures = subject.plan, setting_of(subject, [])
        models = BaseModels(study=subject.study, plan=plan, work=subject.work)
        tuning = tuning_for(subject.study, plan.model, epochs=plan.correction_epochs, seed=plan.seed)
        if subject.study.marked(plan.model) is not None:
            n = len(finding.notes["labels"])
            pictures["images"] += f"; {n} test images without it, onto each of which one from another is pasted"
        return pictures | {
            "training starts from": describe_weights(plan.weights),
            "trained on the biased images": f"{TRAINED[plan.trained]}, {describe_recipe(models.recipe)} and up",
            "layer": f"`{architecture_named(plan.model).layer}`",
            "draws": f"{plan.repeats}: {_DRAWS[kind_of_draws(plan, subject.study.data(plan.model))]}",
            "corrections fine-tune": f"{CORRECTED[plan.corrected]}, {describe_recipe(tuning)} and up",
            "solved": "the minimum itself (`optimizer: converged`), "
            f"L2 of weight {tuning.anchor:g} towards the biased model's head",
            "balanced": "every class counts the same in the loss",
            "strengths": "each method's own grid",
            "strength chosen by": str(BalancedRule()),
        }

    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Write wins, ties and losses, then every setting in full."""
        matches = {finding.key: finding.notes["matches"] for finding in findings}
        labels = {finding.key: finding.notes["labels"] for finding in findings}
        return Presentation(
            text=write_tournament(matches, labels=labels), drawings=[draw_tournament(matches, labels=labels)]
        )


class Pairs(Tournament, name="pairs"):
    """What can be done where the artifact can be put in, against the paper's methods, LEACE and DFR."""

    title = "Beyond the paper: what to do with pairs"
    entrants = PAIRED


class Refit(Tournament, name="refit"):
    """RR-ClArC with other directions, other pooling, and other ways to refit the head, on the same draws."""

    title = "Beyond the paper: where RR-ClArC's direction comes from, and how the head is refitted"
    entrants = REFITS


def _data(subject: Subject) -> BiasedData:
    study, model = subject.study, subject.plan.model
    parts = study.marked(model)
    return study.data(model) if parts is None else paste_artifact(subject, parts)


def _stage(kind: DrawKind, number: int, name: str) -> str:
    return f"{kind}-{_MEANING}-{number}-{name.replace('/', '-')}"


def _judged(name: str, draw: Draw) -> dict[str, object] | None:
    if name in APART:
        return asdict(judge_model(draw, model_named(name, draw)))
    outcome = play(ENTRANTS[name], draw)
    return None if outcome is None else asdict(outcome)


def _match(subject: Subject, stages: Sequence[str]) -> Match:
    kept = [subject.run.read(stage) for stage in stages]
    return Match(tuple(None if each is None else Outcome(**each) for each in kept))


def _rows(experiment: str, name: str, match: Match, labels: np.ndarray) -> list[Row]:
    entrant = ENTRANTS.get(name)
    rows = []
    for number, outcome in match.played.items():
        about: dict[str, Any] = {
            "experiment": experiment,
            "method": name,
            "cav": entrant.direction if entrant and entrant.has_direction else None,
            "strength": outcome.strength,
            "chosen": 1,
            "seed": number,
        }
        rows += [
            Row(**about, split="val", metric="balanced_accuracy_clean", value=outcome.val_clean),
            Row(**about, split="val", metric="balanced_accuracy_biased", value=outcome.val_biased),
        ]
        for measure in MEASURES:
            value = float(outcome.answers.score(labels, measure)[0])
            rows.append(Row(**about, split="test", metric=measure, value=value, n=len(labels)))
    return rows
