"""Run one experiment: fit the CAVs, correct, score; every stage is stored in the run directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hansfree._internal.progress import Progress, silent
from hansfree._internal.store import RunStore
from hansfree.cavs import CAV, alignment_mean, alignment_sample, cav_auc, save_cavs
from hansfree.corrections import StrengthPath, fit_path
from hansfree.corrections.training import TrainedHead
from hansfree.evaluation import CLEAN_TRAINED, ORIGINAL, Row, row_of_quality, rows_of
from hansfree.metrics import Score, compute_scores
from hansfree.models import write_weights
from hansfree.pipeline.config import is_deep
from hansfree.pipeline.outcome import PredictionStore
from hansfree.pipeline.paths import HeadPath, NetworkPath, Task
from hansfree.pipeline.workspace import MethodSpec, Setting, Workspace

AnyPath = HeadPath | NetworkPath


class Experiment:
    """One setting in one run directory; every stage is stored, so that a stopped run resumes.

    Args:
        cache: Where activations are stored; None is the run directory.
    """

    def __init__(
        self, setting: Setting, run: RunStore, *, cache: Path | None = None, progress: Progress = silent
    ) -> None:
        self.setting, self.run, self.progress = setting, run, progress
        self.workspace = Workspace(setting, run.path, cache or run.path / "activations", progress=progress)
        self.predictions = PredictionStore(self.workspace, run.path / "stages")

    def rows(self, methods: Sequence[str]) -> list[Row]:
        """Run all missing stages and return all rows."""
        corrected = (row for name in methods for row in self.rows_for(self.plain(name)))
        return [*self.cav_rows(), *self.original_rows(), *corrected]

    def plain(self, name: str) -> MethodSpec:
        """Return a correction by its name, as ``rr-clarc`` or ``rr-clarc@svm``, in the units of this grid."""
        return MethodSpec.plain(name, grid=self.setting.grid)

    def stage_rows(self, stage: str, work: Callable[[], Sequence[Row]]) -> list[Row]:
        """Return the stored rows of a stage, or compute and store them."""
        return [Row(**row) for row in self.run.stage(stage, lambda: [asdict(row) for row in work()])]

    def cav_rows(self) -> list[Row]:
        """Return the quality of the CAVs."""
        rows = self.stage_rows("cavs", self._fit_cavs)
        for kind in self.setting.further_cavs:  # a stage each, so that one can be added to a finished run
            rows += self.stage_rows(f"cav {kind}", partial(self._fit_further_cav, kind))
        return rows

    def original_rows(self) -> list[Row]:
        """Return the scores of the original model and of the reference model."""
        self.cav_rows()
        return self.stage_rows(ORIGINAL, self._score_original)

    def rows_for(self, spec: MethodSpec) -> list[Row]:
        """Return the scores of a correction, with all of its seeds."""
        rows = [Row(**row) for row in self._corrected(spec)["rows"]]
        for seed in self.further_seeds(spec):
            rows += self.repeated_rows(spec, seed)
        return rows

    def repeated_rows(self, spec: MethodSpec, seed: int) -> list[Row]:
        """Return the scores of a correction with a further seed."""
        return self.stage_rows(Task(spec.name, "seed", seed).name, lambda: self._repeat(spec, seed))

    def selection(self, spec: MethodSpec) -> dict[str, Any]:
        """Return which strength was selected for a correction, and why."""
        return self._corrected(spec)["selection"]  # type: ignore[no-any-return]

    def check(self, methods: Sequence[str]) -> None:
        """Raise if the data do not suit a method, before any is trained; masks are left out, as they may take long."""
        for spec in map(self.plain, methods):
            if not spec.uses_masks:
                self.path(spec).check()

    def path(self, spec: MethodSpec, *, seed: int | None = None, strengths: Sequence[float] | None = None) -> AnyPath:
        """Return a correction along its strengths, with the experiment's first seed by default."""
        self.cav_rows()
        kind = NetworkPath if is_deep(spec.name) else HeadPath
        return kind(self.workspace, self.run, spec, self.setting.tuning.seed if seed is None else seed, strengths)

    def further_seeds(self, spec: MethodSpec) -> range:
        """Return the seeds that a correction is repeated with, at the strength that was selected with the first."""
        first = self.setting.tuning.seed
        return range(first + 1, first + (self.setting.repeats if spec.depends_on_seed else 1))

    # Tasks

    def plan_tasks(self, name: str, spec: MethodSpec | None = None) -> list[list[Task]]:
        """Return a method's missing tasks in rounds: the tasks of a round need the rounds before, not each other.

        Args:
            spec: None is the plain method.
        """
        rounds = [[Task(name)]]
        if name != ORIGINAL:
            spec = spec or self.plain(name)
            path = self.path(spec)
            n_groups = 0 if self.run.has(name) else len(path.groups)
            groups = [
                Task(name, "strengths", number) for number in range(n_groups if n_groups >= path.min_groups else 0)
            ]
            rounds = [groups, [Task(name)], [Task(name, "seed", seed) for seed in self.further_seeds(spec)]]
        missing = ([task for task in tasks if not self.run.has(task.name)] for tasks in rounds)
        return [tasks for tasks in missing if tasks]

    def run_task(self, task: Task, spec: MethodSpec | None = None) -> None:
        """Run one task, unless it is finished."""
        if task.method == ORIGINAL:
            self.original_rows()
            return
        spec = spec or self.plain(task.method)
        if task.kind == "strengths":
            self.run.stage(task.name, lambda: [asdict(record) for record in self.path(spec).train_group(task.number)])
        elif task.kind == "seed":
            self.repeated_rows(spec, task.number)
        else:
            self.selection(spec)

    # Stages

    def _fit_cavs(self) -> list[Row]:
        workspace = self.workspace
        names = CAV.from_marks()
        cavs = {name: workspace.fit_cav(name) for name in self.progress(names, total=len(names), label="CAVs")}
        save_cavs(self.run.path / "cavs.safetensors", cavs)
        cavs.setdefault(self.setting.cav, workspace.cav)
        workspace.corrected_cav(self.setting.cav)  # raises before long work
        return self._quality_rows(cavs)

    def _fit_further_cav(self, kind: str) -> list[Row]:
        self.workspace.corrected_cav(kind)
        is_known = kind in CAV.from_marks()  # the stage of all CAVs has its rows
        return self._quality_rows({} if is_known else {kind: self.workspace.cav_named(kind)})

    def _quality_rows(self, cavs: Mapping[str, CAV]) -> list[Row]:
        """Return how well each CAV fits the artifact; empty if too few test images carry it."""
        workspace = self.workspace
        if not workspace.is_biased_known:
            return []
        clean, biased = workspace.activations["test_clean"].pooled, workspace.activations["test_biased"].pooled
        is_inserted = workspace.data.is_inserted
        # Inserted: every image once, without or with the artifact, as pairs would not be independent.
        without, within = (clean[::2], biased[1::2]) if is_inserted else (clean, biased)
        held_out = np.concatenate([without, within])
        is_biased = np.arange(len(held_out)) >= len(without)
        rows = []
        for name, cav in cavs.items():
            about = {"method": f"cav:{name}", "cav": name, "split": "test", **self._about}
            if is_inserted:
                direction = cav.directions_[0]
                rows.append(row_of_quality("alignment_sample", alignment_sample(direction, biased - clean), **about))
                rows.append(row_of_quality("alignment_mean", alignment_mean(direction, biased - clean), **about))
            rows.append(row_of_quality("cav_auc", cav_auc(cav, held_out, is_biased), **about))
        return rows

    def _score_original(self) -> list[Row]:
        setting, workspace = self.setting, self.workspace
        about = {"split": "test", "chosen": 1, **self._about}
        evidence = workspace.judge(workspace.cut.head_parameters(), None, explained=setting.model)
        self.predictions.write(ORIGINAL, evidence, setting.model)
        rows = rows_of(compute_scores(evidence), method=ORIGINAL, **about)
        if (model := setting.reference()) is not None:
            reference = workspace.evidence_of(model)
            self.predictions.write(CLEAN_TRAINED, reference)
            rows += rows_of(compute_scores(reference), method=CLEAN_TRAINED, **about)
        return rows

    def _corrected(self, spec: MethodSpec) -> dict[str, Any]:
        self.cav_rows()
        return self.run.stage(spec.name, lambda: self._correct(spec))  # type: ignore[no-any-return]

    def _correct(self, spec: MethodSpec) -> dict[str, Any]:
        """Train one method along its strengths, select on validation images, score all on test images."""
        for seed in self.further_seeds(spec):
            self.run.forget(Task(spec.name, "seed", seed).name)  # its strength may have changed
        path = self.path(spec)
        fitted = fit_path(path.candidates(), path.select, score=path.score)
        scores: list[Score] = []
        if fitted.best is not None:
            model = path.model_of(fitted.best)
            write_weights(self.run.path / "corrected" / f"{spec.name}.safetensors", model.state_dict())
            evidence = path.evidence(fitted.best, model)
            self.predictions.write(spec.name, evidence, model)
            scores = compute_scores(evidence)
        rows = self._path_rows(path, fitted, scores)
        result = {"rows": [asdict(row) for row in rows], "selection": self._selection(path, fitted)}
        path.close()
        return result

    def _repeat(self, spec: MethodSpec, seed: int) -> list[Row]:
        """Correct with the selected strength and another seed, and score on the test images."""
        chosen = next((row for row in self._corrected(spec)["rows"] if row["chosen"]), None)
        if chosen is None:
            return []
        strength = chosen["strength"]
        path = self.path(spec, seed=seed, strengths=None if strength is None else [strength])
        evidence = path.repeat()
        path.close()
        about = {**self._describe(path), "chosen": 1, "split": "test", "strength": strength}
        return [] if evidence is None else rows_of(compute_scores(evidence), **about)

    def _selection(self, path: AnyPath, fitted: StrengthPath[TrainedHead]) -> dict[str, Any]:
        rule, original, has_strength = self.setting.rule, self.workspace.original_validation, path.has_strength
        rejected = None if fitted.final is None else rule.rejection(fitted.final, original)
        finals = [history[-1] for history in fitted.histories]
        selection: dict[str, Any] = {
            "rule": asdict(rule.summary(self.setting.uncounted)),
            "strength": fitted.best.strength if fitted.best and has_strength else None,
            "reason": asdict(fitted.selection.reason),
            "rejection": None if rejected is None else asdict(rejected),
            "details": [asdict(detail) for detail in path.details],
            "diverged": [
                strength if has_strength else None
                for strength, final in zip(fitted.strengths, finals)
                if not final.is_finite
            ],
            "admissible": any(rule.rejection(final, original) is None for final in finals),
        }
        if (compared := self.setting.compared_rule) is not None and has_strength:
            other = compared.choose(finals, original).index
            selection["compared"] = None if other is None else fitted.strengths[other]
        if rule.needs_derivative:
            chosen = None if fitted.final is None else fitted.final.derivative
            selection["derivative"] = {"original": original.derivative, "chosen": chosen}
        return selection

    def _path_rows(self, path: AnyPath, fitted: StrengthPath[TrainedHead], chosen_scores: list[Score]) -> list[Row]:
        about, rows = self._describe(path), list[Row]()
        for i, (strength, history, scores) in enumerate(zip(fitted.strengths, fitted.histories, fitted.scores)):
            is_chosen = i == fitted.selection.index
            common = {**about, "chosen": int(is_chosen), "strength": strength if path.has_strength else None}
            for epoch, seen in enumerate(history, start=1):
                known = (seen.clean, seen.biased, seen.flips)
                rows += rows_of(filter(None, known), epoch=epoch, split="val", **common)
            rows += rows_of(chosen_scores if is_chosen else scores, split="test", **common)
        return rows

    def _describe(self, path: AnyPath) -> dict[str, Any]:
        about = {**self._about, **path.method.describe(), "seed": path.seed}
        return about if path.spec.method is None else {**about, "method": path.spec.method}

    @property
    def _about(self) -> dict[str, Any]:
        return {"experiment": self.setting.name, "seed": self.setting.tuning.seed}
