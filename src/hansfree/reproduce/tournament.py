"""Beyond the paper: all methods, directions and ways to refit the head against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, ClassVar

import numpy as np

from hansfree.errors import OptionError
from hansfree.experiments.plans import Plan
from hansfree.experiments.subjects import Subject
from hansfree.reproduce.base import Finding, Presentation, Reproduction, facts_of, key_of
from hansfree.reproduce.figures import draw_tournament
from hansfree.reproduce.tables import write_tournament
from hansfree.results import Row
from hansfree.studies import BiasedData, MarkedTable, Study
from hansfree.tournament import (
    BIASED,
    ENTRANTS,
    MEASURES,
    REFERENCE,
    REFITS,
    RIVALS,
    Draw,
    Entrant,
    Match,
    Outcome,
    judge_model,
    make_draws,
    paste_artifact,
    play,
)


class Tournament(Reproduction, name="tournament"):
    """Every entrant on every draw (``--repeats``), its strength chosen on validation images."""

    title = "Beyond the paper: better directions and more rivals, over several draws"
    entrants: ClassVar[Sequence[Entrant]] = RIVALS

    def check(self, study: Study, plan: Plan) -> None:
        """Refuse a plan in which every draw would train a whole model."""
        if plan.trained == "whole" and study.needs_root:
            raise OptionError("Each draw trains a model of its own: use --train head, which takes seconds.")

    def examine(self, subject: Subject) -> Finding:
        """Let all entrants play on all draws; each result is kept."""
        names = [BIASED, REFERENCE, *(entrant.name for entrant in self.entrants)]
        numbers = range(subject.plan.repeats)
        data = _data(subject)
        missing = [n for n in numbers if not all(subject.run.has(_stage(n, name)) for name in names)]
        for draw in make_draws(subject, data, missing):
            for name in subject.progress(names, total=len(names), label=f"draw {draw.number}"):
                subject.run.stage(_stage(draw.number, name), partial(_judged, name, draw))
        matches = {name: _match(subject, name, numbers) for name in names}
        labels = np.asarray(data.test_clean.labels)
        key = key_of(subject)
        return Finding(
            key=key,
            facts=facts_of(subject, data=data),
            rows=[row for name, match in matches.items() for row in _rows(key.title, name, match, labels)],
            notes={"matches": matches, "labels": labels},
        )

    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Write wins, ties and losses, then every setting in full."""
        matches = {finding.key: finding.notes["matches"] for finding in findings}
        labels = {finding.key: finding.notes["labels"] for finding in findings}
        return Presentation(
            text=write_tournament(matches, labels=labels), drawings=[draw_tournament(matches, labels=labels)]
        )


class Refit(Tournament, name="refit"):
    """RR-ClArC with other directions, other pooling, and other ways to refit the head, on the same draws."""

    title = "Beyond the paper: where RR-ClArC's direction comes from, and how the head is refitted"
    entrants = REFITS


def _data(subject: Subject) -> BiasedData:
    study = subject.study
    return paste_artifact(subject, study) if isinstance(study, MarkedTable) else study.data(subject.plan.model)


def _stage(number: int, name: str) -> str:
    return f"draw-{number}-{name.replace('/', '-')}"


def _judged(name: str, draw: Draw) -> dict[str, object] | None:
    if name in (BIASED, REFERENCE):
        return asdict(judge_model(draw, draw.model if name == BIASED else draw.reference))
    outcome = play(ENTRANTS[name], draw)
    return None if outcome is None else asdict(outcome)


def _match(subject: Subject, name: str, numbers: range) -> Match:
    kept = [subject.run.stage(_stage(number, name), lambda: None) for number in numbers]
    return Match(tuple(None if each is None else Outcome(**each) for each in kept))


def _rows(experiment: str, name: str, match: Match, labels: np.ndarray) -> list[Row]:
    entrant = ENTRANTS.get(name)
    rows = []
    for number, outcome in match.played.items():
        about: dict[str, Any] = {
            "experiment": experiment,
            "method": name,
            "cav": entrant.direction if entrant else None,
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
