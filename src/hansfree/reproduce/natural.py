"""Artifacts that are in the pictures by nature: what each method does to the images that carry them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from hansfree.corrections import Correction
from hansfree.errors import DataError
from hansfree.experiments import Experiment
from hansfree.experiments.plans import Plan
from hansfree.experiments.subjects import Subject
from hansfree.metrics import MIN_GROUP
from hansfree.report.reading import method_title
from hansfree.reproduce.base import (
    Finding,
    Presentation,
    Reproduction,
    facts_of,
    key_of,
    reasons_of,
    rows_by_subject,
)
from hansfree.reproduce.tables import write_groups
from hansfree.reproduce.tables.markdown import paragraphs
from hansfree.results import ORIGINAL, Row
from hansfree.studies import Study

GROUP_ACCURACY = "accuracy_clean"


class Natural(Reproduction, name="natural"):
    """Accuracy by class and natural artifact, where a group has enough images for it to be known."""

    title = "Natural artifacts: accuracy by class with and without them"

    def check(self, study: Study, plan: Plan) -> None:
        """Refuse images of which nothing is told, and an artifact that itself decides which of them are clean."""
        super().check(study, plan)
        if not study.flags():
            raise DataError(f"{study.title} does not say which test images carry an artifact by nature.")
        if not study.data(plan.model).is_inserted:
            raise DataError(
                f"{study.title} has the artifact {study.artifact!r} by nature, and its clean test images are those "
                f"without it. Groups of them are told where another artifact is put in: {', '.join(study.artifacts)}."
            )

    def examine(self, subject: Subject) -> Finding:
        """Score every method on the groups of the clean test images."""
        experiment, data, flags = subject.experiment, subject.data, subject.study.flags()
        rows = experiment.original_rows()
        methods = [name for name in Correction.defaults() if name not in subject.plan.left_out]
        for name in methods:
            rows += experiment.rows_for(experiment.plain(name))
        labels, names = data.test_clean.labels, data.test_clean.class_names
        found, unknown = [], []
        for flag, bits in flags.items():
            for label in np.unique(labels):
                for has_flag in (True, False):
                    inside = (labels == label) & (bits == has_flag)
                    group = f"{names[label]} {'with' if has_flag else 'without'} {flag}"
                    if inside.sum() < MIN_GROUP:
                        unknown.append(f"{group}: {inside.sum()} images, cannot be known")
                        continue
                    found += [_row(rows, experiment, name, inside, group) for name in (ORIGINAL, *methods)]
        reasons = reasons_of(experiment, methods)
        taken = {row.method for row in rows if row.chosen and row.split == "test"}
        key = key_of(subject)
        none = [f"{key.title}, {method_title(name)}: {reasons[name]}" for name in methods if name not in taken]
        return Finding(
            key=key,
            facts=facts_of(subject, reasons=reasons),
            rows=[row for row in found if row],
            notes={"unknown": unknown, "none": none},
        )

    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Write a table per subject, and what cannot be known."""
        lines = dict.fromkeys(line for finding in findings for line in finding.notes["unknown"])
        parts = [write_groups(rows_by_subject(findings))]
        if lines:
            parts += [f"Groups of fewer than {MIN_GROUP} images:", "\n".join(f"- {line}" for line in lines)]
        if none := [line for finding in findings for line in finding.notes["none"]]:
            parts += ["Methods of which no strength could be taken:", "\n".join(f"- {line}" for line in none)]
        return Presentation(text=paragraphs(*parts))


def _row(rows: Sequence[Row], experiment: Experiment, method: str, inside: np.ndarray, group: str) -> Row | None:
    """Return a method's accuracy on a group; None where no strength of it could be taken."""
    about = next((row for row in rows if row.method == method and row.chosen and row.split == "test"), None)
    if about is None:
        return None
    correct = experiment.kept.load(method)["correct_clean"][inside]
    share, n = float(correct.mean()), len(correct)
    score = {
        "metric": GROUP_ACCURACY,
        "group": group,
        "value": share,
        "stderr": np.sqrt(share * (1 - share) / n),
        "n": n,
    }
    return Row(**{**asdict(about), **score})
