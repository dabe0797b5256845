"""The comparisons: all methods, methods that use pairs, and ways to refit the head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, ClassVar

import numpy as np

from benchmarks.comparison.entries import (
    BASELINES,
    CANDIDATES,
    ENTRIES,
    METHODS,
    PAIR_METHODS,
    PICKED,
    REFITS,
    ComparisonEntry,
)
from benchmarks.comparison.page import plot_comparison, write_comparison
from benchmarks.comparison.resamples import Resample, ResampleKind, make_resamples, paste_artifact, resample_kind
from benchmarks.comparison.scoring import (
    MEASURES,
    EntryResult,
    Outcome,
    baseline_model,
    pick_best,
    run_entry,
    score_model,
)
from hansfree.corrections.selection import BalancedRule
from hansfree.corrections.training import check_head_size
from hansfree.data.biased import BiasedData
from hansfree.errors import OptionError
from hansfree.evaluation.results import Row
from hansfree.models import architecture_named, build_model
from hansfree.models.surgery import split
from hansfree.report import describe_reason
from hansfree.report.figures import Drawing
from hansfree_paper.aggregate import Finding
from hansfree_paper.dataset import BenchmarkDataset
from hansfree_paper.runner import (
    CORRECTED,
    TRAINED,
    Reproduction,
    Words,
    describe_recipe,
    describe_weights,
    finding_of,
    setting_of,
)
from hansfree_paper.subjects import Plan, Subject, subject_name, tuning_for

_RESAMPLES = {
    "inserted": "the artifact is inserted into other images of the biased class, and both heads are retrained",
    "natural": "four fifths of the training images, and both heads are retrained",
    "retrained": "a biased model and a reference are trained from other initial weights and in another order",
}


_VERSION = 3  # increase when a resample or an entry changes: older results are not reused


class MethodComparison(Reproduction, name="methods"):
    """Every entry on every resample (``--repeats``), at the strength selected on validation images."""

    title = "Comparison: all methods, over several resamples"
    entries: ClassVar[Sequence[ComparisonEntry]] = METHODS

    def check(self, study: BenchmarkDataset, plan: Plan) -> None:
        """Reject options that have no effect here, and heads too large for L-BFGS."""
        super().check(study, plan)
        if plan.left_out or plan.strengths or plan.grid != "own":
            raise OptionError(
                "The comparison uses the strengths of each method: omit --grid, --strengths and --leave-out."
            )
        if plan.trained == "whole" and study.needs_root:
            raise OptionError("Every resample trains models of its own: use --train head for these images.")
        check_head_size(
            split(build_model(plan.model, classes=2), architecture_named(plan.model).layer, train=plan.corrected),
            advice="Give --corrected last.",
        )

    def examine(self, subject: Subject) -> Finding:
        """Run all entries on all resamples; each result is a stage of the run."""
        names = [*BASELINES, *(entry.name for entry in self.entries)]
        numbers = range(subject.plan.repeats)
        data = _data(subject)
        stage = partial(_stage, resample_kind(subject.plan, data))
        missing = [n for n in numbers if not all(subject.run.has(stage(n, name)) for name in names)]
        for resample in make_resamples(subject, data, missing):
            for name in subject.progress(names, total=len(names), label=f"resample {resample.number}"):
                subject.run.stage(stage(resample.number, name), partial(_run, name, resample))
        results = {name: _read_result(subject, [stage(n, name) for n in numbers]) for name in names}
        if all(name in results for name in CANDIDATES):
            results[PICKED] = pick_best([results[name] for name in CANDIDATES])
        labels = np.asarray(data.test_clean.labels)
        title = subject_name(subject.study, subject.plan)
        rows = [row for name, result in results.items() for row in _rows(title, name, result, labels)]
        return finding_of(subject, rows, data=data, notes={"results": results, "labels": labels})

    def describe(self, subject: Subject, finding: Finding) -> Words:
        """Describe the resamples and the training."""
        plan, pictures = subject.plan, setting_of(subject, [])
        tuning = tuning_for(subject.study, plan.model, epochs=plan.correction_epochs, seed=plan.seed)
        if subject.study.marked(plan.model) is not None:
            n = len(finding.notes["labels"])
            pictures["images"] += f"; {n} test images without it, each paired with an artifact pasted from another"
        return pictures | {
            "training starts from": describe_weights(plan.weights),
            "trained on the biased images": f"{TRAINED[plan.trained]}, {describe_recipe(subject.models.recipe)} and up",
            "layer": f"`{architecture_named(plan.model).layer}`",
            "resamples": f"{plan.repeats}: {_RESAMPLES[resample_kind(plan, subject.study.data(plan.model))]}",
            "corrections fine-tune": f"{CORRECTED[plan.corrected]}, {describe_recipe(tuning)} and up",
            "converged": "L-BFGS (`optimizer: converged`), "
            f"L2 of weight {tuning.anchor:g} towards the biased model's head",
            "balanced": "every class has the same weight in the loss",
            "strengths": "each method's own grid",
            "strength selected by": describe_reason(BalancedRule().summary()),
        }

    def present(self, findings: Sequence[Finding]) -> tuple[str, Sequence[Drawing]]:
        """Write wins, ties and losses, then every setting in full."""
        results = {finding.key: finding.notes["results"] for finding in findings}
        labels = {finding.key: finding.notes["labels"] for finding in findings}
        return write_comparison(results, labels=labels), [plot_comparison(results, labels=labels)]


class Pairs(MethodComparison, name="pairs"):
    """Methods that use counterfactual pairs against the paper's methods, LEACE and DFR."""

    title = "Comparison: methods that use counterfactual pairs"
    entries = PAIR_METHODS


class Refit(MethodComparison, name="refit"):
    """RR-ClArC with other directions, other pooling, and other ways to refit the head."""

    title = "Comparison: directions of RR-ClArC, and ways to refit the head"
    entries = REFITS


def _data(subject: Subject) -> BiasedData:
    study, model = subject.study, subject.plan.model
    parts = study.marked(model)
    return study.data(model) if parts is None else paste_artifact(subject, parts)


def _stage(kind: ResampleKind, number: int, name: str) -> str:
    return f"{kind}-{_VERSION}-{number}-{name.replace('/', '-')}"


def _run(name: str, resample: Resample) -> dict[str, object] | None:
    if name in BASELINES:
        return asdict(score_model(resample, baseline_model(name, resample)))
    outcome = run_entry(ENTRIES[name], resample)
    return None if outcome is None else asdict(outcome)


def _read_result(subject: Subject, stages: Sequence[str]) -> EntryResult:
    kept = [subject.run.read(stage) for stage in stages]
    return EntryResult(tuple(None if each is None else Outcome(**each) for each in kept))


def _rows(experiment: str, name: str, result: EntryResult, labels: np.ndarray) -> list[Row]:
    entry = ENTRIES.get(name)
    rows = []
    for number, outcome in result.completed.items():
        about: dict[str, Any] = {
            "experiment": experiment,
            "method": name,
            "cav": entry.direction if entry and entry.has_direction else None,
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
