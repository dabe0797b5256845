"""Run one experiment: fit the CAVs, correct, score; every stage is stored in the run directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hansfree._internal.progress import Progress, silent
from hansfree._internal.store import RunStore
from hansfree.cavs import CAV, alignment_mean, alignment_sample, cav_auc, save_cavs
from hansfree.corrections import (
    DeepCorrection,
    LatentCorrection,
    StrengthPath,
    TrainingImages,
    Validation,
    fit_path,
    split_name,
)
from hansfree.errors import DataError
from hansfree.evaluation import CLEAN_TRAINED, ORIGINAL, Row, row_of_quality, rows_of
from hansfree.evaluation.heatmaps import Explanation
from hansfree.metrics import Score, compute_scores
from hansfree.models import write_weights
from hansfree.pipeline.config import AnyCorrection, is_deep
from hansfree.pipeline.deep import NetworkPath
from hansfree.pipeline.outcome import PredictionStore
from hansfree.pipeline.paths import HeadPath, Task
from hansfree.pipeline.workspace import MethodSpec, Setting, Workspace, corrected_cav


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

    def rows(self, methods: Sequence[str] | None = None) -> list[Row]:
        """Run all missing stages and return all rows; ``methods`` are the paper's by default."""
        rows = self.cav_rows() + self.original_rows()
        for name in LatentCorrection.defaults() if methods is None else methods:
            rows += self.rows_for(self.plain(name))
        return rows

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
        self.cav_rows()
        for spec in map(self.plain, methods):
            if spec.uses_masks:
                continue
            method = self._method(spec, self.setting.tuning.seed)
            if isinstance(method, DeepCorrection):
                method.check(TrainingImages.of(self.setting.data.train))
            else:
                method.check(self.workspace.cut, self.workspace.train_for(method))

    def path(self, spec: MethodSpec) -> HeadPath | NetworkPath:
        """Return a correction along its strengths, with the experiment's first seed."""
        self.cav_rows()
        method = self._method(spec, self.setting.tuning.seed)
        return self._path(spec, method, self.strengths(spec, type(method)))

    def strengths(self, spec: MethodSpec, method: type[AnyCorrection]) -> list[float]:
        """Return the strengths to try; one number that has no effect for a method without strength."""
        given = self.setting.strengths.get(split_name(spec.name)[0])  # for all directions of a method
        return method.info.strengths_to_try(given or spec.strengths) or [1.0 if is_deep(spec.name) else 0.0]

    def further_seeds(self, spec: MethodSpec) -> range:
        """Return the seeds that a correction is repeated with, at the strength that was selected with the first."""
        first = self.setting.tuning.seed
        return range(first + 1, first + (self.setting.repeats if spec.depends_on_seed else 1))

    @property
    def explanation(self) -> Explanation:
        """How the heatmaps of this experiment are made."""
        return self.workspace.pictures.explanation

    # Stages

    def _fit_cavs(self) -> list[Row]:
        workspace = self.workspace
        train = workspace.activations["train"]
        if train.has_artifact is None:
            raise DataError("The training data do not say which images carry the artifact.")
        X, has_artifact = train.pooled[workspace.cav_images], train.has_artifact[workspace.cav_images]
        members = self.progress(CAV.from_marks().items(), total=len(CAV.from_marks()), label="CAVs")
        cavs = {name: member().fit(X, has_artifact) for name, member in members}
        save_cavs(self.run.path / "cavs.safetensors", cavs)
        cavs.setdefault(self.setting.cav, workspace.cav)
        corrected_cav(workspace, self.setting.cav)  # raises before long work
        return self._quality_rows(cavs)

    def _fit_further_cav(self, kind: str) -> list[Row]:
        corrected_cav(self.workspace, kind)
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
        rows = self._path_rows(self._describe(spec, path.method), fitted, scores, path.method.info.has_strength)
        result = {"rows": [asdict(row) for row in rows], "selection": self._selection(path, fitted)}
        path.close()
        return result

    def _repeat(self, spec: MethodSpec, seed: int) -> list[Row]:
        """Correct with the selected strength and another seed, and score on the test images."""
        chosen = next((row for row in self._corrected(spec)["rows"] if row["chosen"]), None)
        if chosen is None:
            return []
        method, strength = self._method(spec, seed), chosen["strength"]
        path = self._path(spec, method, self.strengths(spec, type(method)) if strength is None else [strength])
        evidence = path.repeat()
        path.close()
        about = {**self._describe(spec, method), "seed": seed, "chosen": 1, "split": "test", "strength": strength}
        return [] if evidence is None else rows_of(compute_scores(evidence), **about)

    def _method(self, spec: MethodSpec, seed: int) -> AnyCorrection:
        if is_deep(spec.name):
            return spec.make(data=self.setting.data, tuning=replace(self.setting.network, seed=seed))  # type: ignore[no-any-return]
        cav = corrected_cav(self.workspace, spec.cav or self.setting.cav)
        images = self.workspace.masked_train if spec.uses_masks else self.setting.data.train
        tuning = replace(self.setting.tuning, seed=seed)
        return spec.make(cav=cav, images=images, tuning=tuning)  # type: ignore[no-any-return]

    def _path(self, spec: MethodSpec, method: AnyCorrection, strengths: Sequence[float]) -> HeadPath | NetworkPath:
        if isinstance(method, DeepCorrection):
            return NetworkPath(self.workspace, self.run, spec.name, method, strengths, progress=self.progress)
        return HeadPath(self.workspace, self.run, spec.name, method, strengths, progress=self.progress)

    def _selection(self, path: HeadPath | NetworkPath, fitted: StrengthPath) -> dict[str, Any]:
        rule, original = self.setting.rule, self.workspace.original_validation
        has_strength = path.method.info.has_strength

        def rejection(final: Validation) -> str:
            return rule.rejection(final, original)

        few = ", ".join(map(str, self.setting.uncounted))
        selection: dict[str, Any] = {
            "rule": str(rule) + (f"; class {few} has too few of them to count" if few else ""),
            "strength": fitted.best.strength if fitted.best and has_strength else None,
            "reason": fitted.selection.reason,
            "objection": "" if fitted.final is None else rejection(fitted.final),
            "remark": path.remark,
            "diverged": [
                strength if has_strength else None
                for strength, history in zip(fitted.strengths, fitted.histories)
                if not history[-1].is_finite
            ],
            "admissible": any(not rejection(history[-1]) for history in fitted.histories),
        }
        if rule.needs_derivative:
            chosen = None if fitted.final is None else fitted.final.derivative
            selection["derivative"] = {"original": original.derivative, "chosen": chosen}
        return selection

    def _path_rows(
        self, about: Mapping[str, Any], fitted: StrengthPath, chosen_scores: list[Score], has_strength: bool
    ) -> list[Row]:
        rows: list[Row] = []
        for i, (strength, history, scores) in enumerate(zip(fitted.strengths, fitted.histories, fitted.scores)):
            is_chosen = i == fitted.selection.index
            common = {**about, "chosen": int(is_chosen), "strength": strength if has_strength else None}
            for epoch, seen in enumerate(history, start=1):
                known = [seen.clean] if seen.biased is None else [seen.clean, seen.biased]
                rows += rows_of(known, epoch=epoch, split="val", **common)
            rows += rows_of(chosen_scores if is_chosen else scores, split="test", **common)
        return rows

    def _describe(self, spec: MethodSpec, method: AnyCorrection) -> dict[str, Any]:
        about = {**self._about, **method.describe()}
        return about if spec.method is None else {**about, "method": spec.method}

    @property
    def _about(self) -> dict[str, Any]:
        return {"experiment": self.setting.name, "seed": self.setting.tuning.seed}
