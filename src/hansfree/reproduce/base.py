"""The family of the paper's experiments: each examines one subject at a time, then shows what all of them gave."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from hansfree.corrections import Correction
from hansfree.errors import DataError
from hansfree.experiments import Experiment
from hansfree.experiments.plans import Plan
from hansfree.experiments.subjects import Subject
from hansfree.metrics import chance_level, majority_rate
from hansfree.registry import Registered
from hansfree.report.heatmap_set import HeatmapSet
from hansfree.report.style import Drawing
from hansfree.reproduce.keys import Facts, PairedDifferences, SubjectKey, count_epochs
from hansfree.reproduce.settings import Words, setting_of
from hansfree.results import Row
from hansfree.selection import check_selectable
from hansfree.studies import BiasedData, Study

_PAPER_CORRECTION_EPOCHS = 10


@dataclass(frozen=True, eq=False, kw_only=True)
class Finding:
    """What an experiment found out about one subject."""

    key: SubjectKey
    facts: Facts
    rows: Sequence[Row]
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)  # pictures and heatmaps, for figures
    notes: Mapping[str, Any] = field(default_factory=dict)  # what else a figure or a table needs


@dataclass(frozen=True, eq=False, kw_only=True)
class Presentation:
    """What a reader sees: Markdown, and drawings; None stands for one that there was nothing to draw for."""

    text: str
    drawings: Sequence[Drawing | None] = ()
    files: Mapping[str, str] = field(default_factory=dict)  # further files by name; an empty one is not written


class Reproduction(Registered, ABC):
    """One of the paper's experiments. A member says what to do with a subject and how to show the findings."""

    kind = "experiment"
    title: ClassVar[str]  # what of the paper this is

    def check(self, study: Study, plan: Plan) -> None:
        """Refuse a subject that this experiment cannot be done on, before hours are spent on any of them."""
        check_selectable(study.data(plan.model))

    @abstractmethod
    def examine(self, subject: Subject) -> Finding:
        """Do the experiment on one subject; stages that are done already are not done again."""

    def describe(self, subject: Subject, finding: Finding) -> Words:
        """Say what was run on a subject."""
        return setting_of(subject, finding.rows)

    @abstractmethod
    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Show what all subjects gave."""


def rows_by_subject(findings: Sequence[Finding]) -> dict[SubjectKey, Sequence[Row]]:
    """Return the rows of all findings, as tables and figures take them."""
    return {finding.key: finding.rows for finding in findings}


def facts_by_subject(findings: Sequence[Finding]) -> dict[SubjectKey, Facts]:
    """Return what is known about the subjects beside their scores."""
    return {finding.key: finding.facts for finding in findings}


def heatmaps_by_subject(findings: Sequence[Finding]) -> dict[SubjectKey, HeatmapSet]:
    """Return the images of all findings with their heatmaps; of subjects without images to show there are none."""
    return {
        finding.key: HeatmapSet(finding.arrays["images"], finding.arrays["masks"], relevance_of(finding))
        for finding in findings
        if "images" in finding.arrays
    }


def relevance_of(finding: Finding) -> dict[str, np.ndarray]:
    """Return a finding's heatmaps by name, which it keeps under ``relevance/<name>``."""
    return {name.partition("/")[2]: found for name, found in finding.arrays.items() if name.startswith("relevance/")}


def check_shown(study: Study, plan: Plan) -> None:
    """Refuse an artifact that no test image carries, for experiments that look at such images only."""
    if not len(study.data(plan.model).test_biased):
        raise DataError(
            f"No test image of {study.title} carries the artifact {study.artifact!r}, and this experiment looks at "
            "those that do: there must be at least 1. Experiments that correct a model can do without, such as table1."
        )


def key_of(subject: Subject) -> SubjectKey:
    """Return what tables and figures call a subject."""
    return name_subject(subject.study, subject.plan)


def name_subject(study: Study, plan: Plan) -> SubjectKey:
    """Return the same before the subject is opened."""
    return SubjectKey(study.name, study.artifact, plan.model)


def facts_of(
    subject: Subject,
    *,
    data: BiasedData | None = None,
    paired: PairedDifferences | None = None,
    reasons: Mapping[str, str] | None = None,
) -> Facts:
    """Return what a reader must know beside the scores; the paper's numbers only where the bias is the paper's own.

    Args:
        data: the subject's, where it need not be read into memory.
        reasons: by method, why its strength was taken, or none (:func:`reasons_of`).
    """
    study, data = subject.study, data or subject.data
    is_the_papers = study.artifact == study.artifacts[0] and study.size == study.default_size
    return Facts(
        chance_level=chance_level(data.test_clean.labels),
        class_names=tuple(data.test_clean.class_names),
        majority_rate=majority_rate(data.test_clean.labels),
        is_localized=data.is_localized,
        published=study.published if is_the_papers else None,
        departures=_departures(subject),
        grid=subject.plan.grid,
        reasons=reasons or {},
        paired=paired or {},
    )


def reasons_of(experiment: Experiment, methods: Sequence[str]) -> dict[str, str]:
    """Return by method why its strength was taken, or why none could be; that a method has none needs no reason."""
    chosen = {name: experiment.selection(experiment.plain(name)) for name in methods}
    return {
        name: str(choice["reason"])
        for name, choice in chosen.items()
        if Correction.named(name).has_strength or not choice["admissible"]
    }


def _departures(subject: Subject) -> tuple[str, ...]:
    """Return in what the setting is not the paper's, beyond what decides whether its numbers are shown at all."""
    study, plan = subject.study, subject.plan
    theirs = study.recipe.epochs.get(plan.model)
    found = {
        "training started from random weights, the paper's from pretrained ones": plan.weights is None,
        "only what follows the layer was trained, in the paper the whole model": plan.trained == "head",
        f"{count_epochs(plan.epochs or 0)} of training, in the paper {theirs}": plan.trained == "whole"
        and plan.epochs not in (None, theirs),
        "only the last linear layer was corrected, in the paper all that follows the layer": plan.corrected == "last",
        f"{count_epochs(plan.correction_epochs)} of correction, in the paper {_PAPER_CORRECTION_EPOCHS}": (
            plan.correction_epochs != _PAPER_CORRECTION_EPOCHS
        ),
    }
    return tuple(sentence for sentence, holds in found.items() if holds)
