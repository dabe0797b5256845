"""Run one experiment: examine the CAV, correct, score, keep predictions."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from torch import Tensor, nn

from hansfree._internal.files import read_arrays, write_text, written_atomically
from hansfree._internal.progress import Progress, silent, without_warnings
from hansfree._internal.statistics import Interval
from hansfree._internal.store import RunStore
from hansfree.activations import find_pairs
from hansfree.cavs import CAV, SignalCAV, alignment_mean, alignment_sample, cav_auc, save_cavs
from hansfree.cavs.diagnostics import Diagnosis, SuspectLabel, choose_basis, diagnose_cav, expected_cosine, quick_check
from hansfree.corrections import (
    CAVCorrection,
    DeepCorrection,
    LatentCorrection,
    Need,
    Selection,
    StrengthPath,
    Validation,
    fit_path,
    method_named,
    split_name,
)
from hansfree.corrections.training import TrainedHead, group_strengths
from hansfree.errors import DataError
from hansfree.evaluation import CLEAN_TRAINED, ORIGINAL, HeldOutFeatures, Row, judge_head, row_of_quality, rows_of
from hansfree.evaluation.heatmaps import Explanation
from hansfree.metrics import (
    Answers,
    Difference,
    Evidence,
    Score,
    compare_answers,
    compare_classes,
    compare_probability_changes,
    compute_scores,
    predict_classes,
    score_intervals,
)
from hansfree.models import predict_logits, write_weights
from hansfree.pipeline.config import AnyCorrection, is_deep
from hansfree.pipeline.deep import Choose, NetworkPath, check_deep
from hansfree.pipeline.outcome import (
    collect_cases,
    probabilities_of,
    small_pictures,
)
from hansfree.pipeline.workspace import (
    MethodSpec,
    Setting,
    Workspace,
    corrected_cav,
)


class Task(NamedTuple):
    """Some strengths of a method, a further seed of it, or without a kind its selection and scores."""

    method: str
    kind: Literal["strengths", "seed"] | None = None
    number: int = 0

    @property
    def name(self) -> str:
        """The stage's name in the run."""
        return self.method if self.kind is None else f"{self.method} {self.kind} {self.number}"


@dataclass(frozen=True, eq=False)
class RecordedCandidate(TrainedHead):
    """A head that another task trained: its scores are stored, its weights are not."""

    scores: list[Score]


class HeadPath:
    """The heads of one method along its strengths, trained on cached activations.

    Args:
        name: Of the method's stage.
    """

    def __init__(
        self,
        workspace: Workspace,
        run: RunStore,
        name: str,
        method: LatentCorrection,
        strengths: Sequence[float],
        *,
        progress: Progress = silent,
    ) -> None:
        self.workspace, self.run, self.name, self.method, self.progress = workspace, run, name, method, progress
        self.train = workspace.train_for(method)
        self.edit = method.edit(self.train)
        self.groups = group_strengths(workspace.cut, strengths, method.tuning)
        self._retrained: dict[float, dict[str, Tensor]] = {}

    def candidates(self) -> Iterator[TrainedHead]:
        """Yield a head for every strength, in their order, as they come from training."""
        tried = self._tried()
        # Only the last group may be smaller, and stays the last: what is left is grouped as it is among all.
        left = [strength for group in self.groups for strength in group if strength not in tried]
        trained = self._trained(left) if left else iter(())
        for group in self.groups:
            for strength in group:
                yield tried[strength] if strength in tried else next(trained)

    def score(self, head: TrainedHead) -> list[Score]:
        """Return what a head does on the test images."""
        if isinstance(head, RecordedCandidate):
            return head.scores
        cut, device = self.workspace.cut, self.workspace.device
        return compute_scores(judge_head(cut, head.state, self._held_out, device=device), per_class=False)

    def choose(self, by_rule: Choose) -> Choose:
        """Return how a strength is selected: by the run's rule, if the method has any."""
        rule, original = self.workspace.setting.rule, self.workspace.original_validation
        return by_rule if self.method.info.has_strength else rule.selector(original, has_strength=False)

    def model_of(self, head: TrainedHead) -> nn.Module:
        """Return the whole model with a head."""
        return self.method.install(self.workspace.setting.model, self.workspace.cut, self.train, self.weights_of(head))

    def evidence(self, head: TrainedHead, model: nn.Module) -> Evidence:
        """Return what the chosen head does on the test images."""
        # Masks that the CAV localised prove nothing about a method that was trained with either of them.
        is_circular = Need.MASKS in self.method.info.needs or isinstance(self.method, CAVCorrection)
        explained = model if self.workspace.data.has_masks or not is_circular else None
        return self.workspace.judge(self.weights_of(head), self.edit, explained=explained)

    def remark(self) -> str:
        """Return what belongs beside the results."""
        return self.workspace.remark_on(self.method)

    def close(self) -> None:
        """Do nothing: a path of heads leaves no files."""

    def repeat(self, strength: float) -> Evidence:
        """Return what the head of one strength does on the test images; no other is trained."""
        (head,) = self.method.train(self.workspace.cut, self.train, [strength], progress=self.progress, label=self.name)
        return self.workspace.judge(head.state, self.edit)

    def weights_of(self, head: TrainedHead) -> dict[str, Tensor]:
        """Return a head's weights; of one that another task trained, its group is trained again, once."""
        if not isinstance(head, RecordedCandidate):
            return head.state
        if head.strength not in self._retrained:
            (group,) = (group for group in self.groups if head.strength in group)
            with without_warnings():  # they were logged the first time
                heads = self.method.train(
                    self.workspace.cut, self.train, group, progress=self.progress, label=self.name
                )
                self._retrained[head.strength] = next(one.state for one in heads if one.strength == head.strength)
        return self._retrained[head.strength]

    def train_group(self, number: int) -> list[dict[str, Any]]:
        """Train one group apart; return what its heads did, as a stage keeps it."""
        return [_to_keep(head, self.score(head)) for head in self._trained(self.groups[number])]

    def _trained(self, strengths: Sequence[float]) -> Iterator[TrainedHead]:
        return self.method.train(
            self.workspace.cut,
            self.train,
            strengths,
            watch=self.workspace.validator(self.edit),
            progress=self.progress,
            label=self.name,
        )

    @cached_property
    def _held_out(self) -> HeldOutFeatures:
        return self.workspace.held_out(self.edit)

    def _tried(self) -> dict[float, RecordedCandidate]:
        """Return what others have tried, in the same groups."""
        tried: dict[float, RecordedCandidate] = {}
        for number, group in enumerate(self.groups):
            stage = Task(self.name, "strengths", number).name
            if self.run.has(stage):
                heads = {head.strength: head for head in map(_from_kept, self.run.read(stage))}
                tried |= heads if list(heads) == group else {}
        return tried


def _to_keep(head: TrainedHead, scores: Sequence[Score]) -> dict[str, Any]:
    return {
        "strength": head.strength,
        "is_finite": head.is_finite,
        "history": [asdict(seen) for seen in head.history],
        "scores": [asdict(score) for score in scores],
    }


def _from_kept(kept: Mapping[str, Any]) -> RecordedCandidate:
    history = tuple(map(_validation, kept["history"]))
    return RecordedCandidate(
        kept["strength"], dict, kept["is_finite"], history, [Score(**score) for score in kept["scores"]]
    )


def _validation(kept: Mapping[str, Any]) -> Validation:
    biased = None if kept["biased"] is None else Score(**kept["biased"])
    by_class = {int(label): value for label, value in kept.get("by_class", {}).items()}  # JSON makes texts of numbers
    parsed = {"clean": Score(**kept["clean"]), "biased": biased, "lost": tuple(kept["lost"]), "by_class": by_class}
    return Validation(**{**kept, **parsed})


class PredictionStore:
    """The arrays of one experiment's stages.

    Args:
        folder: Where they lie, a file for every model.
    """

    def __init__(self, workspace: Workspace, folder: Path) -> None:
        self.workspace, self.setting, self.folder = workspace, workspace.setting, folder

    def write(self, name: str, evidence: Evidence, model: nn.Module | None = None) -> None:
        """Write what a model did; of one that is given, also the heatmaps of the shown images."""
        arrays = {
            "correct_clean": evidence.is_correct("clean"),
            "correct_biased": evidence.is_correct("biased"),
            "predicted_clean": predict_classes(evidence.logits_clean),
            "predicted_biased": predict_classes(evidence.logits_biased),
            **probabilities_of(evidence),
        }
        if model is not None:
            arrays["relevance"] = self.workspace.pictures.heatmaps(model, self.workspace.shown_rows)
            # what an exported model must give
            arrays["shown_logits"] = evidence.logits_biased[self.workspace.shown_rows]
        with written_atomically(self._path(name)) as temporary:
            np.savez(temporary, **arrays)  # type: ignore[arg-type]

    def load(self, name: str) -> dict[str, np.ndarray]:
        """Return what a finished stage kept: correctness, predictions, and the heatmaps of the shown images.

        Of the clean-trained reference there are no heatmaps.
        """
        stage = ORIGINAL if name == CLEAN_TRAINED else name
        return read_arrays(self._path(name), stage=self.folder / f"{stage}.json")

    def paired(self, methods: Sequence[str] | None = None) -> list[Difference]:
        """Return by how much the methods and the references differ from each other on the same images."""
        data, names = self.setting.data, self._compared(methods)
        answers, seed = {name: self._answers(name) for name in names}, self.setting.tuning.seed
        found = compare_answers(answers, *self._test_labels, biased_class=data.biased_class, seed=seed)
        return [*found, *compare_probability_changes({name: self._pull(name) for name in names if data.is_inserted})]

    def paired_classes(self, methods: Sequence[str] | None = None) -> list[Difference]:
        """Return by how much the methods change the sensitivity of each class, on the clean test images."""
        answers = {name: self._answers(name) for name in self._finished(methods)}
        return compare_classes(answers, self._test_labels[0], rival=ORIGINAL)

    def intervals(self, methods: Sequence[str] | None = None) -> dict[str, dict[str, Interval]]:
        """Return the 95 % intervals of accuracies and flip rate, by method; of the references too."""
        seed = self.setting.tuning.seed
        return {
            name: score_intervals(self._answers(name), *self._test_labels, seed=seed)
            for name in self._compared(methods)
        }

    def shown(self, methods: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Return the heatmaps of some images for the original model and every method, with the images.

        Nothing, where no test image carries the artifact.
        """
        test, rows = self.setting.data.test_biased, self.workspace.shown_rows
        if not len(rows):
            return {}
        images, masks = zip(*(test.pixels(int(row)) for row in rows))
        arrays = {"images": np.stack(images), "masks": np.stack(masks)}
        arrays |= {"labels": test.labels[rows], "ids": test.ids[rows]}
        arrays["direction"] = self.workspace.pictures.direction(rows)
        return arrays | {f"relevance/{name}": self.load(name)["relevance"] for name in self._finished(methods)}

    def cases(self, methods: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Return small pictures of test images with what every model makes of them; nothing where nothing is known."""
        kept = {name: self.load(name) for name in self._finished(methods)}
        return collect_cases(self.setting.data, kept, seed=self.setting.tuning.seed)

    def _answers(self, name: str) -> Answers:
        arrays = self.load(name)
        return {"clean": arrays["predicted_clean"], "biased": arrays["predicted_biased"]}

    def _pull(self, name: str) -> np.ndarray:
        """Return per image what inserting the artifact does to the biased class's probability."""
        arrays = self.load(name)
        return np.asarray(arrays["biased_class_biased"] - arrays["biased_class_clean"])

    @property
    def _test_labels(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The labels of the test images, and of those with the artifact where they are others."""
        data = self.setting.data
        return data.test_clean.labels, None if data.is_inserted else data.test_biased.labels

    def _finished(self, methods: Sequence[str] | None) -> list[str]:
        """Return the original model and the methods (by default the paper's) that have a model."""
        wanted = (ORIGINAL, *(LatentCorrection.defaults() if methods is None else methods))
        return [name for name in wanted if self._path(name).exists()]

    def _compared(self, methods: Sequence[str] | None) -> list[str]:
        """Return them with the clean-trained reference, where there is one."""
        return [*self._finished(methods), *([CLEAN_TRAINED] if self._path(CLEAN_TRAINED).exists() else ())]

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.npz"


def quality_rows(workspace: Workspace, cavs: Mapping[str, CAV], about: Mapping[str, Any]) -> list[Row]:
    """Return how well each CAV fits the artifact; nothing where too few test images carry it.

    Args:
        about: What the rows of an experiment have in common.
    """
    if not workspace.is_biased_known:
        return []
    clean, biased = workspace.activations["test_clean"].pooled, workspace.activations["test_biased"].pooled
    is_inserted = workspace.data.is_inserted
    if is_inserted:
        # every image once, without or with the artifact: pairs would not be independent
        without, within = clean[::2], biased[1::2]
    else:
        without, within = clean, biased
    held_out = np.concatenate([without, within])
    is_biased = np.arange(len(held_out)) >= len(without)
    rows = []
    for name, cav in cavs.items():
        common = {"method": f"cav:{name}", "cav": name, "split": "test", **about}
        if is_inserted:
            direction = cav.directions_[0]
            rows.append(row_of_quality("alignment_sample", alignment_sample(direction, biased - clean), **common))
            rows.append(row_of_quality("alignment_mean", alignment_mean(direction, biased - clean), **common))
        rows.append(row_of_quality("cav_auc", cav_auc(cav, held_out, is_biased), **common))
    return rows


class Experiment:
    """One setting in one run directory; every stage is stored, so that a stopped run resumes.

    Args:
        cache: Where activations are kept; None is the run folder.
    """

    def __init__(
        self, setting: Setting, run: RunStore, *, cache: Path | None = None, progress: Progress = silent
    ) -> None:
        self.setting, self.run, self.progress = setting, run, progress
        self.workspace = Workspace(setting, run.path, cache or run.path / "activations", progress=progress)
        self.predictions = PredictionStore(self.workspace, run.path / "stages")

    def rows(self, methods: Sequence[str] | None = None) -> list[Row]:
        """Do all stages that are not done yet, and return all rows; ``methods`` are the paper's by default."""
        rows = self.cav_rows() + self.original_rows()
        for name in LatentCorrection.defaults() if methods is None else methods:
            rows += self.rows_for(self.plain(name))
        return rows

    def plain(self, name: str) -> MethodSpec:
        """Return a correction by its name, as ``rr-clarc`` or ``rr-clarc@svm``, in the units of this grid."""
        return MethodSpec.plain(name, grid=self.setting.grid)

    def cav_rows(self) -> list[Row]:
        """Return the quality of the CAVs."""
        rows = self.run.stage("cavs", self._cavs)
        for kind in self.setting.further_cavs:  # a stage each, so that one can be added to a run that was begun
            rows += self.run.stage(f"cav {kind}", partial(self._further_cav, kind))
        return [Row(**row) for row in rows]

    def original_rows(self) -> list[Row]:
        """Return the scores of the original model and of the reference model."""
        self.cav_rows()
        return [Row(**row) for row in self.run.stage(ORIGINAL, self._original)]

    def rows_for(self, spec: MethodSpec) -> list[Row]:
        """Return the scores of a correction, with all of its seeds."""
        rows = [Row(**row) for row in self._corrected(spec)["rows"]]
        for seed in self.further_seeds(spec):
            rows += self.repeated_rows(spec, seed)
        return rows

    def repeated_rows(self, spec: MethodSpec, seed: int) -> list[Row]:
        """Return the scores of a correction with a further seed."""
        stage = Task(spec.name, "seed", seed).name
        return [Row(**row) for row in self.run.stage(stage, lambda: self._repeat(spec, seed))]

    def check(self, methods: Sequence[str]) -> None:
        """Raise what a method would refuse these data for, before any of them is trained; masks may take long."""
        self.cav_rows()
        for name in methods:
            spec = self.plain(name)
            if not spec.uses_masks:
                method = self._method(spec, self.setting.tuning.seed)
                if isinstance(method, DeepCorrection):
                    check_deep(method, self.workspace)
                else:
                    method.check(self.workspace.cut, self.workspace.train_for(method))

    def selection(self, spec: MethodSpec) -> dict[str, Any]:
        """Say which strength was chosen for a correction, and why."""
        return self._corrected(spec)["selection"]  # type: ignore[no-any-return]

    def strengths(self, spec: MethodSpec, method: AnyCorrection | type[AnyCorrection]) -> list[float]:
        """Return the strengths that a correction is tried with; 0 alone where it has none."""
        given = self.setting.strengths.get(split_name(spec.name)[0])  # for all directions of a method
        return method.info.strengths_to_try(given or spec.strengths) or [1.0 if is_deep(spec.name) else 0.0]

    def along(self, spec: MethodSpec) -> HeadPath | NetworkPath:
        """Return a correction along its strengths."""
        self.cav_rows()
        method = self._method(spec, self.setting.tuning.seed)
        return self._path(spec, method, self.strengths(spec, method))

    def train_group(self, spec: MethodSpec, number: int) -> list[dict[str, Any]]:
        """Train one group of a latent method's strengths; return what its heads did, for the run store."""
        along = self.along(spec)
        return along.train_group(number) if isinstance(along, HeadPath) else []

    def _path(self, spec: MethodSpec, method: AnyCorrection, strengths: Sequence[float]) -> HeadPath | NetworkPath:
        kind = NetworkPath if isinstance(method, DeepCorrection) else HeadPath
        return kind(self.workspace, self.run, spec.name, method, strengths, progress=self.progress)  # type: ignore[arg-type]

    def further_seeds(self, spec: MethodSpec) -> range:
        """Return the seeds that a correction is repeated with, at the strength that was chosen with the first."""
        first = self.setting.tuning.seed
        return range(first + 1, first + (self.setting.repeats if spec.depends_on_seed else 1))

    @property
    def explanation(self) -> Explanation:
        """How the heatmaps of this experiment are made."""
        return self.workspace.pictures.explanation

    # Stages

    def _cavs(self) -> list[dict[str, Any]]:
        workspace = self.workspace
        train = workspace.activations["train"]
        if train.has_artifact is None:
            raise DataError("The training data do not say which images carry the artifact.")
        X, has_artifact = train.pooled[workspace.cav_images], train.has_artifact[workspace.cav_images]
        members = self.progress(CAV.from_marks().items(), total=len(CAV.from_marks()), label="CAVs")
        cavs = {name: member().fit(X, has_artifact) for name, member in members}
        save_cavs(self.run.path / "cavs.safetensors", cavs)
        cavs.setdefault(self.setting.cav, workspace.cav)
        corrected_cav(workspace, self.setting.cav)  # here, to raise before long work
        return [asdict(row) for row in quality_rows(workspace, cavs, self._about)]

    def _further_cav(self, kind: str) -> list[dict[str, Any]]:
        """Make a further CAV, joined where the setting says so, before anybody corrects along it."""
        corrected_cav(self.workspace, kind)
        is_known = kind in CAV.from_marks()  # by the stage of all of these
        cavs = {} if is_known else {kind: self.workspace.cav_named(kind)}
        return [asdict(row) for row in quality_rows(self.workspace, cavs, self._about)]

    def _original(self) -> list[dict[str, Any]]:
        setting, workspace = self.setting, self.workspace
        about = {"split": "test", "chosen": 1, **self._about}
        evidence = workspace.judge(workspace.cut.head_parameters(), None, explained=setting.model)
        self.predictions.write(ORIGINAL, evidence, setting.model)
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
            self.predictions.write(CLEAN_TRAINED, reference)
            rows += rows_of(compute_scores(reference), method=CLEAN_TRAINED, **about)
        return [asdict(row) for row in rows]

    def _corrected(self, spec: MethodSpec) -> dict[str, Any]:
        self.cav_rows()
        return self.run.stage(spec.name, lambda: self._correct(spec))  # type: ignore[no-any-return]

    def _correct(self, spec: MethodSpec) -> dict[str, Any]:
        """Train one method along its strengths, choose on validation images, score all on test images."""
        for seed in self.further_seeds(spec):
            self.run.forget(Task(spec.name, "seed", seed).name)  # of a strength that may be another now
        along = self.along(spec)
        method = along.method
        path = fit_path(along.candidates(), along.choose(self._choose), score=along.score)
        chosen: list[Score] = []
        if path.best is not None:
            model = along.model_of(path.best)
            write_weights(self.run.path / "corrected" / f"{spec.name}.safetensors", model.state_dict())
            evidence = along.evidence(path.best, model)
            self.predictions.write(spec.name, evidence, model)
            chosen = compute_scores(evidence)
        result = {
            "rows": [asdict(row) for row in self._path_rows(spec, method, path, chosen)],
            "selection": self._selection(along, path),
        }
        along.close()
        return result

    def _repeat(self, spec: MethodSpec, seed: int) -> list[dict[str, Any]]:
        """Correct with the chosen strength and another seed, and score on the test images."""
        chosen = next((row for row in self._corrected(spec)["rows"] if row["chosen"]), None)
        if chosen is None:
            return []
        method, strength = self._method(spec, seed), chosen["strength"]
        (trained,) = [strength] if strength is not None else self.strengths(spec, method)
        along = self._path(spec, method, [trained])
        evidence = along.repeat(trained)
        along.close()
        about = {**self._describe(spec, method), "seed": seed, "chosen": 1, "split": "test"}
        scores = [] if evidence is None else compute_scores(evidence)
        return [asdict(row) for row in rows_of(scores, strength=strength, **about)]

    def _method(self, spec: MethodSpec, seed: int) -> AnyCorrection:
        if is_deep(spec.name):
            deep: DeepCorrection = spec.make(tuning=replace(self.setting.network, seed=seed))
            return deep
        cav = corrected_cav(self.workspace, spec.cav or self.setting.cav)
        images = self.workspace.masked_train if spec.uses_masks else self.setting.data.train
        latent: LatentCorrection = spec.make(cav=cav, images=images, tuning=replace(self.setting.tuning, seed=seed))
        return latent

    def _choose(self, finals: Sequence[Validation]) -> Selection:
        return self.setting.rule.choose(finals, self.workspace.original_validation)

    def _objection(self, final: Validation) -> str:
        return self.setting.rule.rejection(final, self.workspace.original_validation)

    def _selection(self, along: HeadPath | NetworkPath, path: StrengthPath) -> dict[str, Any]:
        method = along.method
        few = ", ".join(map(str, self.setting.uncounted))
        return {
            "rule": str(self.setting.rule) + (f"; class {few} has too few of them to count" if few else ""),
            "strength": path.best.strength if path.best and method.info.has_strength else None,
            "reason": path.selection.reason,
            "objection": "" if path.final is None else self._objection(path.final),
            "remark": along.remark(),
            "diverged": [
                strength if method.info.has_strength else None
                for strength, history in zip(path.strengths, path.histories)
                if not history[-1].is_finite
            ],
            **self._derivatives(path),
            "admissible": any(not self._objection(history[-1]) for history in path.histories),
        }

    def _derivatives(self, path: StrengthPath) -> dict[str, Any]:
        """Return the derivatives that the rule compared: of the original model and of the chosen strength."""
        if not self.setting.rule.needs_derivative:
            return {}
        chosen = None if path.final is None else path.final.derivative
        return {"derivative": {"original": self.workspace.original_validation.derivative, "chosen": chosen}}

    def _path_rows(
        self, spec: MethodSpec, method: AnyCorrection, path: StrengthPath, chosen_scores: list[Score]
    ) -> list[Row]:
        rows: list[Row] = []
        for i, (strength, history, scores) in enumerate(zip(path.strengths, path.histories, path.scores)):
            about = {**self._describe(spec, method), "chosen": int(i == path.selection.index)}
            about["strength"] = strength if method.info.has_strength else None
            for epoch, seen in enumerate(history, start=1):
                known = [seen.clean] if seen.biased is None else [seen.clean, seen.biased]
                rows += rows_of(known, epoch=epoch, split="val", **about)
            rows += rows_of(chosen_scores if i == path.selection.index else scores, split="test", **about)
        return rows

    def _describe(self, spec: MethodSpec, method: AnyCorrection) -> dict[str, Any]:
        about = {**self._about, **method.describe()}
        return about if spec.method is None else {**about, "method": spec.method}

    @property
    def _about(self) -> dict[str, Any]:
        return {"experiment": self.setting.name, "seed": self.setting.tuning.seed}


log = logging.getLogger(__name__)


_SHOWN = 6  # images whose artifact label looks wrong, the most suspicious ones

_SIDE = 128  # pixels of their thumbnails: an artifact may be small

_LEAST_OTHERS = 2  # images of other classes, for the overlap with the class


def diagnose_direction(
    experiment: Experiment,
    *,
    names: Mapping[int, str] | None = None,
    is_marked: np.ndarray | None = None,
    progress: Progress = silent,
) -> Diagnosis:
    """Diagnose the direction and write the diagnosis to the run directory.

    ``diagnostics.json`` holds the findings, ``suspect_labels.npz`` images whose artifact label looks wrong.

    Args:
        names: The user's names of the images, by id; the id by default.
        is_marked: By id, which artifact labels a person gave: labels that the labelling page proposed are not a ground
            truth. None where that is not known.
    """
    setting, workspace, folder = experiment.setting, experiment.workspace, experiment.run
    needs_pairs = CAV.named(setting.cav).needs_pairs

    def work() -> str:
        train, inside = workspace.activations["train"], workspace.cav_images
        if needs_pairs:
            train = workspace.paired_train
            inside = find_pairs(train).T.ravel()  # of all classes, as the direction itself; the clean ones first
        bits = np.asarray(train.has_artifact)
        others = train.pooled[(train.labels != setting.data.biased_class) & ~bits]
        # labels of inserted artifacts are known
        marked = None if needs_pairs or is_marked is None else is_marked[train.ids[inside]]
        basis = choose_basis(bits[inside], marked)
        inside = inside[basis.rows]
        ids = train.ids[inside].tolist()
        found = diagnose_cav(
            train.pooled[inside],
            bits[inside],
            cav=setting.cav,
            paired=needs_pairs,
            in_class=train.labels[inside] == setting.data.biased_class,
            others=others if len(others) >= _LEAST_OTHERS else None,
            ids=ids if names is None else [names[id_] for id_ in ids],
            seed=setting.tuning.seed,
            progress=progress,
        )
        diagnosis = basis.annotate(found)
        _keep_suspect_labels(
            experiment, diagnosis.suspect_labels[:_SHOWN], names
        )  # here, as names may change between runs
        return diagnosis.to_json()

    text = folder.stage("diagnostics", work)
    write_text(folder.path / "diagnostics.json", text)
    return Diagnosis.from_json(text)


def _keep_suspect_labels(
    experiment: Experiment, marks: Sequence[SuspectLabel], names: Mapping[int, str] | None
) -> None:
    """Keep images whose artifact label looks wrong, the most suspicious first, where there are any."""
    if not marks:
        return
    images = experiment.setting.data.train
    rows = {id_ if names is None else names[id_]: row for row, id_ in enumerate(images.ids.tolist())}
    pictures = small_pictures(images, (rows[mark.id] for mark in marks), side=_SIDE)
    with written_atomically(experiment.run.path / "suspect_labels.npz") as temporary:
        np.savez_compressed(temporary, pictures=pictures)


def check_concepts(experiment: Experiment) -> list[str]:
    """Return warnings for removed or protected concepts whose labels do not show in the layer."""
    setting = experiment.setting
    marked = {
        concept.name: (concept.rows, concept.told_by)
        for concept in (*setting.removed, *setting.protected)
        if isinstance(concept.told_by, np.ndarray)
    }
    if not marked:
        return []

    def work() -> list[str]:
        pooled, doubts = experiment.workspace.activations["train"].pooled, []
        for name, (rows, bits) in marked.items():
            seen = quick_check(pooled[rows], bits, cav=setting.cav, seed=setting.tuning.seed)
            if not seen.is_visible:
                doubts.append(
                    f"{name}: held-out AUC {seen.auc:.2f} ({bits.sum()} training images with it, {(~bits).sum()} "
                    "without), no better than with shuffled labels. It does not show in this layer, its labels are "
                    "wrong, or they are too few. Leave it out."
                )
        return doubts

    found: list[str] = experiment.run.stage("concepts", work)
    for sentence in found:
        log.warning(sentence)
    return found


_MIN_GROUPS = 3  # trained in parallel: the chosen one is trained again for its weights, so two gain nothing


def plan_tasks(experiment: Experiment, name: str) -> list[list[Task]]:
    """Return a method's missing tasks in rounds: the tasks of a round need the rounds before, not each other."""
    has = experiment.run.has
    rounds = [[Task(name)]]
    if name != ORIGINAL:
        apart = [Task(name, "strengths", number) for number in range(0 if has(name) else _groups(experiment, name))]
        seeds = [Task(name, "seed", seed) for seed in experiment.further_seeds(experiment.plain(name))]
        rounds = [apart, [Task(name)], seeds]
    missing = ([stage for stage in stages if not has(stage.name)] for stages in rounds)
    return [stages for stages in missing if stages]


def run_task(experiment: Experiment, stage: Task) -> None:
    """Run one task, unless it is finished."""
    if stage.method == ORIGINAL:
        experiment.original_rows()
        return
    spec = experiment.plain(stage.method)
    if stage.kind == "strengths":
        experiment.run.stage(stage.name, lambda: experiment.train_group(spec, stage.number))
    elif stage.kind == "seed":
        experiment.repeated_rows(spec, stage.number)
    else:
        experiment.selection(spec)


def _groups(experiment: Experiment, name: str) -> int:
    """Return into how many tasks a method's strengths are split; 0 if they stay together."""
    if is_deep(name):  # whole networks are trained one after the other
        return 0
    # Asked of the class: to make a member may take masks, and those long.
    strengths = experiment.strengths(experiment.plain(name), method_named(name))
    groups = group_strengths(experiment.workspace.cut, strengths, experiment.setting.tuning)
    return len(groups) if len(groups) >= _MIN_GROUPS else 0


_SIMILAR = 0.5  # share of the attainable cosine; below, the two changes mostly differ


_MEASURABLE = 0.3  # attainable cosine; below, the direction of the labelled images is too noisy


@dataclass(frozen=True)
class InsertionSimilarity:
    """How the change by insertion in a layer compares with the natural artifact of the training images."""

    cosine: float  # of the mean change with the direction of the marked images
    attainable: float  # that the very artifact of the marked images would have: few of them give a noisy direction
    size: float  # how far the change goes along that direction; the marked images' own distance is 1
    n_inserted: int
    n_marked: int

    @property
    def differs(self) -> bool:
        """Whether evidence by insertion says little about the natural artifact."""
        return self.attainable >= _MEASURABLE and self.cosine < _SIMILAR * self.attainable

    @property
    def sentence(self) -> str:
        """The comparison in words."""
        if self.attainable < _MEASURABLE:
            return (
                f"Similarity of the inserted and the natural artifact: n/a (the direction of the {self.n_marked} "
                "labelled images of the biased class is too noisy)."
            )
        comparison = (
            f"Inserted into {self.n_inserted} validation images, the artifact changes the layer with a cosine of "
            f"{self.cosine:.2f} to the direction of the {self.n_marked} labelled training images (at most about "
            f"{self.attainable:.2f} is attainable), and {self.size:.2g} times as far along it."
        )
        if not self.differs:
            return comparison
        return (
            f"{comparison} To this model the two differ: evidence by insertion says little about the natural artifact. "
            "Check the inserted artifact, its size and place, and the artifact labels."
        )


def compare_insertion(experiment: Experiment) -> InsertionSimilarity:
    """Compare the artifact inserted into validation images with the natural one of training images."""

    def work() -> dict[str, float | int]:
        workspace = experiment.workspace
        train, inside = workspace.activations["train"], workspace.cav_images
        bits = np.asarray(train.has_artifact)[inside]
        marked = workspace.cav_named(SignalCAV.name)
        clean, biased = (workspace.activations[name].pooled for name in ("val_clean", "val_biased"))
        change = (biased - clean).mean(axis=0, dtype=np.float64)
        along, length, size = float(change @ marked.direction_), float(np.linalg.norm(change)), float(marked.scale_[0])
        seed = experiment.setting.tuning.seed
        found = InsertionSimilarity(
            cosine=along / length if length else 0.0,
            attainable=expected_cosine(train.pooled[inside], bits, cav=SignalCAV.name, seed=seed),
            size=along / size if size else 0.0,
            n_inserted=len(clean),
            n_marked=int(bits.sum()),
        )
        return asdict(found)

    return InsertionSimilarity(**experiment.run.stage("likeness", work))
