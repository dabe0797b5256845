"""Q3: does correcting one class spare the classes that rightly use something akin to the artifact?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from hansfree.corrections import RRR, Correction, RRClArC, Vanilla
from hansfree.corrections.rr_clarc import Scale
from hansfree.errors import DataError
from hansfree.experiments import Experiment, Treatment
from hansfree.experiments.plans import Plan
from hansfree.experiments.subjects import Subject
from hansfree.metrics import paired_difference
from hansfree.models import predict_logits
from hansfree.reproduce.base import (
    Finding,
    Presentation,
    Reproduction,
    facts_by_subject,
    facts_of,
    key_of,
    rows_by_subject,
)
from hansfree.reproduce.changes import CHANGE
from hansfree.reproduce.claims import check_claims, write_claims
from hansfree.reproduce.figures import draw_changes
from hansfree.reproduce.tables import write_changes
from hansfree.results import Row
from hansfree.studies import BiasedData, Study

_MOST_SELECTED = 20
_SELECTED_SHARE = 1 / 3  # of all classes at most, where there are few
_ROLL = 0x5E1


class ClassSpecific(Reproduction, name="q3"):
    """The change of accuracy against Vanilla on the classes that react most to the artifact, on others, on all."""

    title = "Q3: class-specific correction"

    def check(self, study: Study, plan: Plan) -> None:
        """Refuse a bias that cannot be put into an unpoisoned model's images."""
        super().check(study, plan)
        data = study.data(plan.model)
        if not data.is_inserted or (data.clean_train is None and not study.starts_clean):
            raise DataError(
                f"{study.title} has no unpoisoned model, or no images without and with the artifact: the classes that "
                "react to it cannot be known."
            )

    def examine(self, subject: Subject) -> Finding:
        """Rank the classes by the unpoisoned model, correct by all methods, and compare with Vanilla image by image."""
        experiment, data = subject.experiment, subject.data
        selected = subject.run.stage("q3 classes", lambda: rank_classes(experiment, data))
        groups = _groups(data, selected, seed=subject.plan.seed)
        left_out = [name for name in subject.plan.left_out if name != Vanilla.name]  # with it all others are compared
        treatments = [
            *(experiment.plain(name) for name in Correction.defaults() if name not in left_out),
            *_for_one_class(experiment, data.biased_class, without=left_out),
        ]
        rows: list[Row] = []
        for treatment in treatments:
            rows += experiment.rows_for(treatment)
        baseline = experiment.kept.load(Vanilla.name)["correct_clean"]
        for treatment in treatments:
            rows += _changes(experiment, treatment, baseline, groups)
        theirs = set(subject.study.published_labels(subject.plan.model))
        names = [
            f"{data.test_clean.class_names[label]}{' (in the paper too)' * (label in theirs)}" for label in selected
        ]
        return Finding(key=key_of(subject), facts=facts_of(subject), rows=rows, notes={"selected": names})

    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Write and draw the changes, and name the selected classes."""
        subjects, facts = rows_by_subject(findings), facts_by_subject(findings)
        claims = [claim for claim in check_claims(subjects, facts=facts) if claim.about == "selected classes"]
        lines = [f"- {finding.key.title}: {', '.join(finding.notes['selected'])}" for finding in findings]
        text = "\n\n".join(
            [
                write_changes(subjects, facts=facts),
                "## Selected classes",
                "Those whose logit rises most in the unpoisoned model when the artifact is put in:",
                "\n".join(lines),
                "## The paper's claims about selected classes",
                write_claims(claims),
            ]
        )
        return Presentation(text=text, drawings=[draw_changes(subjects, facts=facts)])


def rank_classes(experiment: Experiment, data: BiasedData) -> list[int]:
    """Return the classes whose mean logit rises most under the artifact in the model that never saw it, highest first.

    The biased class is not among them: it is the one to be corrected.
    """
    reference = experiment.setting.reference()
    if reference is None:
        raise DataError(f"{experiment.setting.name} has no unpoisoned model: classes that react cannot be known.")
    rise = (predict_logits(reference, data.test_biased) - predict_logits(reference, data.test_clean)).mean(axis=0)
    order = [int(label) for label in np.argsort(-rise) if label != data.biased_class]
    return order[: max(1, min(_MOST_SELECTED, int(_SELECTED_SHARE * len(rise))))]


def _groups(data: BiasedData, selected: Sequence[int], *, seed: int) -> dict[str, np.ndarray]:
    """Return which test images belong to the selected classes, to as many random others, and to any."""
    labels = data.test_clean.labels
    others = np.setdiff1d(np.unique(labels), [*selected, data.biased_class])
    rng = np.random.default_rng((seed, _ROLL))
    random = rng.choice(others, size=min(len(selected), len(others)), replace=False)
    groups = {
        "selected": np.isin(labels, selected),
        "random": np.isin(labels, random),
        "all": np.ones(len(labels), dtype=bool),
    }
    return {name: inside for name, inside in groups.items() if inside.any()}  # of two classes none is left to draw


def _for_one_class(experiment: Experiment, biased_class: int, *, without: Sequence[str]) -> list[Treatment]:
    """Return the methods that can spare the other classes, aimed at the biased one, in the units of the plain ones."""
    setting = experiment.setting

    def rr_clarc(*, cav: Any, images: Any, tuning: Any) -> Correction:
        scale: Scale = "paper" if setting.grid == "paper" else "artifact"
        return RRClArC(cav, target=biased_class, scale=scale, tuning=tuning)

    def rrr(*, cav: Any, images: Any, tuning: Any) -> Correction:
        return RRR(images, target=biased_class, tuning=tuning)

    makers = {RRR.name: rrr, RRClArC.name: rr_clarc}
    return [
        Treatment(
            name=f"{name} class-{biased_class}",
            make=make,
            strengths=setting.strengths.get(name) or experiment.plain(name).strengths,
            uses_masks=experiment.plain(name).uses_masks,
        )
        for name, make in makers.items()
        if name not in without
    ]


def _changes(
    experiment: Experiment, treatment: Treatment, baseline: np.ndarray, groups: Mapping[str, np.ndarray]
) -> list[Row]:
    """Return the accuracy on clean test images minus Vanilla's, per group of classes; none where no strength fits."""
    scored = [row for row in experiment.rows_for(treatment) if row.chosen and row.split == "test"]
    if not scored:
        return []
    correct = experiment.kept.load(treatment.name)["correct_clean"]
    about = {**asdict(scored[0]), "metric": CHANGE}
    found = []
    for group, inside in groups.items():
        value, stderr = paired_difference(correct[inside], baseline[inside])
        found.append(Row(**{**about, "group": group, "value": value, "stderr": stderr, "n": int(inside.sum())}))
    return found
