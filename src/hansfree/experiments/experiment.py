"""The stages of an experiment: CAVs, the model as it came, each correction; kept, so that a killed run goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from hansfree.cavs import CAV, save_cavs
from hansfree.corrections import CAVCorrection, Correction, split_name
from hansfree.errors import DataError
from hansfree.experiments.joining import corrected_cav
from hansfree.experiments.kept import Kept
from hansfree.experiments.material import Material
from hansfree.experiments.qualities import quality_rows
from hansfree.experiments.setting import Setting, Treatment
from hansfree.experiments.stages import Stage
from hansfree.experiments.strengths import Strengths
from hansfree.heatmaps import Explanation
from hansfree.metrics import Evidence, Score, compute_scores
from hansfree.models import predict_logits
from hansfree.progress import Progress, silent
from hansfree.results import CLEAN_TRAINED, ORIGINAL, Row, rows_of
from hansfree.runs import Run
from hansfree.selection import Choice, StrengthPath, Validation, walk_path
from hansfree.weights import write_weights


class Experiment:
    """One setting in one run folder; every stage is kept, so that a killed run goes on where it stopped.

    Args:
        cache: Where activations are kept; None is the run folder.
    """

    def __init__(self, setting: Setting, run: Run, *, cache: Path | None = None, progress: Progress = silent) -> None:
        self.setting, self.run, self.progress = setting, run, progress
        self.material = Material(setting, run.path, cache or run.path / "activations", progress=progress)
        self.kept = Kept(self.material, run.path / "stages")

    def rows(self, methods: Sequence[str] | None = None) -> list[Row]:
        """Do all stages that are not done yet, and return all rows; ``methods`` are the paper's by default."""
        rows = self.cav_rows() + self.original_rows()
        for name in Correction.defaults() if methods is None else methods:
            rows += self.rows_for(self.plain(name))
        return rows

    def plain(self, name: str) -> Treatment:
        """Return a correction by its name, as ``rr-clarc`` or ``rr-clarc@svm``, in the units of this grid."""
        return Treatment.plain(name, grid=self.setting.grid)

    def cav_rows(self) -> list[Row]:
        """Return the quality of the CAVs."""
        rows = self.run.stage("cavs", self._cavs)
        for kind in self.setting.further_cavs:  # a stage each, so that one can be added to a run that was begun
            rows += self.run.stage(f"cav {kind}", partial(self._further_cav, kind))
        return [Row(**row) for row in rows]

    def original_rows(self) -> list[Row]:
        """Return the scores of the model as it came, and of its clean-trained reference."""
        self.cav_rows()
        return [Row(**row) for row in self.run.stage(ORIGINAL, self._original)]

    def rows_for(self, treatment: Treatment) -> list[Row]:
        """Return the scores of a correction, with all of its seeds."""
        rows = [Row(**row) for row in self._corrected(treatment)["rows"]]
        known = {row.seed for row in rows}  # runs of earlier versions kept all seeds in one stage
        for seed in self.further_seeds(treatment):
            if seed not in known:
                rows += self.repeated_rows(treatment, seed)
        return rows

    def repeated_rows(self, treatment: Treatment, seed: int) -> list[Row]:
        """Return the scores of a correction with a further seed."""
        stage = Stage(treatment.name, "seed", seed).name
        return [Row(**row) for row in self.run.stage(stage, lambda: self._repeat(treatment, seed))]

    def check(self, methods: Sequence[str]) -> None:
        """Raise what a method would refuse these data for, before any of them is trained; masks may take long."""
        self.cav_rows()
        for name in methods:
            treatment = self.plain(name)
            if not treatment.uses_masks:
                method = self._method(treatment, self.setting.tuning.seed)
                method.check(self.material.cut, self.material.train_for(method))

    def selection(self, treatment: Treatment) -> dict[str, Any]:
        """Say which strength was chosen for a correction, and why."""
        return self._corrected(treatment)["selection"]  # type: ignore[no-any-return]

    def strengths(self, treatment: Treatment, method: Correction | type[Correction]) -> list[float]:
        """Return the strengths that a correction is tried with; 0 alone where it has none."""
        given = self.setting.strengths.get(split_name(treatment.name)[0])  # for all directions of a method
        return method.strengths_to_try(given or treatment.strengths) or [0.0]

    def along(self, treatment: Treatment) -> Strengths:
        """Return a correction along its strengths."""
        self.cav_rows()
        method = self._method(treatment, self.setting.tuning.seed)
        tried = self.strengths(treatment, method)
        return Strengths(self.material, self.run, treatment.name, method, tried, progress=self.progress)

    def further_seeds(self, treatment: Treatment) -> range:
        """Return the seeds that a correction is repeated with, at the strength that was chosen with the first."""
        first = self.setting.tuning.seed
        return range(first + 1, first + (self.setting.repeats if treatment.depends_on_seed else 1))

    @property
    def explanation(self) -> Explanation:
        """How the heatmaps of this experiment are made."""
        return self.material.pictures.explanation

    # The stages

    def _cavs(self) -> list[dict[str, Any]]:
        material = self.material
        train = material.activations["train"]
        if train.has_artifact is None:
            raise DataError("The training data do not say which images carry the artifact.")
        X, has_artifact = train.pooled[material.cav_images], train.has_artifact[material.cav_images]
        members = self.progress(CAV.from_marks().items(), total=len(CAV.from_marks()), label="CAVs")
        cavs = {name: member().fit(X, has_artifact) for name, member in members}
        save_cavs(self.run.path / "cavs.safetensors", cavs)
        cavs.setdefault(self.setting.cav, material.cav)
        corrected_cav(material, self.setting.cav)  # here, so that what cannot be joined is told before long work
        return [asdict(row) for row in quality_rows(material, cavs, self._about)]

    def _further_cav(self, kind: str) -> list[dict[str, Any]]:
        """Make a further CAV, joined where the setting says so, before anybody corrects along it."""
        corrected_cav(self.material, kind)
        is_known = kind in CAV.from_marks()  # by the stage of all of these
        cavs = {} if is_known else {kind: self.material.cav_named(kind)}
        return [asdict(row) for row in quality_rows(self.material, cavs, self._about)]

    def _original(self) -> list[dict[str, Any]]:
        setting, material = self.setting, self.material
        about = {"split": "test", "chosen": 1, **self._about}
        evidence = material.judge(material.cut.head_parameters(), None, explained=setting.model)
        self.kept.keep(ORIGINAL, evidence, setting.model)
        rows = rows_of(compute_scores(evidence), method=ORIGINAL, **about)
        if (model := setting.reference()) is not None:
            clean = predict_logits(model, setting.data.test_clean)
            biased = setting.data.test_biased
            reference = Evidence(
                labels=setting.data.test_clean.labels,
                biased_class=setting.data.biased_class,
                logits_clean=clean,
                logits_biased=predict_logits(model, biased) if len(biased) else clean[:0],
                labels_biased=None if setting.data.is_inserted else biased.labels,
            )
            self.kept.keep(CLEAN_TRAINED, reference)
            rows += rows_of(compute_scores(reference), method=CLEAN_TRAINED, **about)
        return [asdict(row) for row in rows]

    def _corrected(self, treatment: Treatment) -> dict[str, Any]:
        self.cav_rows()
        return self.run.stage(treatment.name, lambda: self._correct(treatment))  # type: ignore[no-any-return]

    def _correct(self, treatment: Treatment) -> dict[str, Any]:
        """Train one method along its strengths, choose on validation images, score all on test images."""
        setting, material = self.setting, self.material
        for seed in self.further_seeds(treatment):
            self.run.forget(Stage(treatment.name, "seed", seed).name)  # of a strength that may be another now
        along = self.along(treatment)
        method = along.method
        path = walk_path(
            along.heads(), self._choose if method.has_strength else self._take_the_only_one, score=along.score
        )
        chosen: list[Score] = []
        if path.best is not None:
            state = along.weights_of(path.best)
            model = method.install(setting.model, material.cut, along.train, state)
            write_weights(self.run.path / "corrected" / f"{treatment.name}.safetensors", model.state_dict())
            # masks that the CAV localised prove nothing about a method that was trained with either of them
            is_told = method.uses_masks or isinstance(method, CAVCorrection)
            scored = model if setting.data.has_masks or not is_told else None
            evidence = material.judge(state, along.edit, explained=scored)
            self.kept.keep(treatment.name, evidence, model)
            chosen = compute_scores(evidence)
        return {
            "rows": [asdict(row) for row in self._path_rows(treatment, method, path, chosen)],
            "selection": self._selection(method, path),
        }

    def _repeat(self, treatment: Treatment, seed: int) -> list[dict[str, Any]]:
        """Correct with the chosen strength once more, and score on the test images."""
        chosen = next((row for row in self._corrected(treatment)["rows"] if row["chosen"]), None)
        if chosen is None:
            return []
        method = self._method(treatment, seed)
        train, strength = self.material.train_for(method), chosen["strength"]
        (head,) = method.train(
            self.material.cut, train, [strength or 0.0], progress=self.progress, label=treatment.name
        )
        scores = compute_scores(self.material.judge(head.state, method.inference_edit(train)))
        about = {**self._describe(treatment, method), "seed": seed, "chosen": 1, "split": "test"}
        return [asdict(row) for row in rows_of(scores, strength=strength, **about)]

    def _method(self, treatment: Treatment, seed: int) -> Correction:
        cav = corrected_cav(self.material, treatment.cav or self.setting.cav)
        images = self.material.masked_train if treatment.uses_masks else self.setting.data.train
        return treatment.make(cav=cav, images=images, tuning=replace(self.setting.tuning, seed=seed))

    def _choose(self, finals: Sequence[Validation]) -> Choice:
        return self.setting.rule.choose(finals, self.material.original_validation)

    def _take_the_only_one(self, finals: Sequence[Validation]) -> Choice:
        """A method without strength has nothing to choose; where the rule would reject it, the table says so."""
        objection = self._objection(finals[0])
        return Choice(0, "has no strength to choose" + (f", but {objection}" if objection else ""))

    def _objection(self, final: Validation) -> str:
        return self.setting.rule.objection(final, self.material.original_validation)

    def _selection(self, method: Correction, path: StrengthPath) -> dict[str, Any]:
        few = ", ".join(map(str, self.setting.uncounted))
        return {
            "rule": str(self.setting.rule) + (f"; class {few} has too few of them to count" if few else ""),
            "strength": path.best.strength if path.best and method.has_strength else None,
            "reason": path.choice.reason,
            "objection": "" if path.choice.index is None else self._objection(path.histories[path.choice.index][-1]),
            "remark": self.material.remark_on(method),
            "diverged": [
                strength if method.has_strength else None
                for strength, history in zip(path.strengths, path.histories)
                if not history[-1].is_finite
            ],
            **self._derivatives(path),
            "admissible": any(not self._objection(history[-1]) for history in path.histories),
        }

    def _derivatives(self, path: StrengthPath) -> dict[str, Any]:
        """Say what the rule that goes by the derivative saw: of the model as it came, and at every strength."""
        if not self.setting.rule.needs_derivative:
            return {}
        after = [history[-1].derivative for history in path.histories]
        chosen = None if path.choice.index is None else after[path.choice.index]
        return {"derivative": {"original": self.material.original_validation.derivative, "chosen": chosen}}

    def _path_rows(
        self, treatment: Treatment, method: Correction, path: StrengthPath, chosen_scores: list[Score]
    ) -> list[Row]:
        rows: list[Row] = []
        for i, (strength, history, scores) in enumerate(zip(path.strengths, path.histories, path.scores)):
            about = {**self._describe(treatment, method), "chosen": int(i == path.choice.index)}
            about["strength"] = strength if method.has_strength else None
            for epoch, seen in enumerate(history, start=1):
                known = [seen.clean] if seen.biased is None else [seen.clean, seen.biased]
                rows += rows_of(known, epoch=epoch, split="val", **about)
            rows += rows_of(chosen_scores if i == path.choice.index else scores, split="test", **about)
        return rows

    def _describe(self, treatment: Treatment, method: Correction) -> dict[str, Any]:
        told = {**self._about, **method.describe()}
        return told if treatment.method is None else {**told, "method": treatment.method}

    @property
    def _about(self) -> dict[str, Any]:
        return {"experiment": self.setting.name, "seed": self.setting.tuning.seed}
