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
from hansfree._internal.store import Run
from hansfree.activations import find_pairs
from hansfree.cavs import CAV, alignment_mean, alignment_sample, cav_auc, save_cavs
from hansfree.cavs.diagnostics import Diagnosis, WrongMark, choose_basis, examine_cav, glance_at
from hansfree.corrections import CAVCorrection, Correction, split_name
from hansfree.corrections.training import TrainedHead, group_strengths
from hansfree.errors import DataError
from hansfree.evaluation import HeldOutFeatures, judge_head
from hansfree.experiments.cases import collect_cases, probabilities_of, small_pictures
from hansfree.experiments.workspace import Material, Setting, Treatment, corrected_cav
from hansfree.heatmaps import Explanation
from hansfree.metrics import (
    Answers,
    Difference,
    Evidence,
    Interval,
    Score,
    compare_answers,
    compare_classes,
    compare_pulls,
    compute_scores,
    predict_classes,
    score_intervals,
)
from hansfree.models import predict_logits
from hansfree.results import CLEAN_TRAINED, ORIGINAL, Row, row_of_quality, rows_of
from hansfree.selection import Choice, StrengthPath, Validation, walk_path
from hansfree.weights import write_weights


class Stage(NamedTuple):
    """Some strengths of a method, a further seed of it, or without a kind its choice and all that follows."""

    method: str
    kind: Literal["strengths", "seed"] | None = None
    number: int = 0

    @property
    def name(self) -> str:
        """The stage's name in the run."""
        return self.method if self.kind is None else f"{self.method} {self.kind} {self.number}"


@dataclass(frozen=True, eq=False)
class TriedHead(TrainedHead):
    """A head that was trained apart: its weights are gone, what it did is known."""

    scores: list[Score]


class Strengths:
    """The heads of one method.

    Args:
        name: Of the method's stage.
    """

    def __init__(
        self,
        material: Material,
        run: Run,
        name: str,
        method: Correction,
        strengths: Sequence[float],
        *,
        progress: Progress = silent,
    ) -> None:
        self.material, self.run, self.name, self.method, self.progress = material, run, name, method, progress
        self.train = material.train_for(method)
        self.edit = method.inference_edit(self.train)
        self.groups = group_strengths(material.cut, strengths, method.tuning)

    def heads(self) -> Iterator[TrainedHead]:
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
        if isinstance(head, TriedHead):
            return head.scores
        cut, device = self.material.cut, self.material.device
        return compute_scores(judge_head(cut, head.state, self._held_out, device=device), per_class=False)

    def weights_of(self, head: TrainedHead) -> dict[str, Tensor]:
        """Return a head's weights; of one that was tried apart, its group is trained once more."""
        if not isinstance(head, TriedHead):
            return head.state
        (group,) = (group for group in self.groups if head.strength in group)
        with without_warnings():  # they were told the first time
            again = self.method.train(self.material.cut, self.train, group, progress=self.progress, label=self.name)
            return next(one.state for one in again if one.strength == head.strength)

    def try_group(self, number: int) -> list[dict[str, Any]]:
        """Train one group apart; return what its heads did, as a stage keeps it."""
        return [_to_keep(head, self.score(head)) for head in self._trained(self.groups[number])]

    def _trained(self, strengths: Sequence[float]) -> Iterator[TrainedHead]:
        return self.method.train(
            self.material.cut,
            self.train,
            strengths,
            watch=self.material.validator(self.edit),
            progress=self.progress,
            label=self.name,
        )

    @cached_property
    def _held_out(self) -> HeldOutFeatures:
        return self.material.held_out(self.edit)

    def _tried(self) -> dict[float, TriedHead]:
        """Return what others have tried, in the same groups."""
        tried: dict[float, TriedHead] = {}
        for number, group in enumerate(self.groups):
            stage = Stage(self.name, "strengths", number).name
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


def _from_kept(kept: Mapping[str, Any]) -> TriedHead:
    history = tuple(map(_validation, kept["history"]))
    return TriedHead(kept["strength"], dict, kept["is_finite"], history, [Score(**score) for score in kept["scores"]])


def _validation(kept: Mapping[str, Any]) -> Validation:
    biased = None if kept["biased"] is None else Score(**kept["biased"])
    by_class = {int(label): value for label, value in kept.get("by_class", {}).items()}  # JSON makes texts of numbers
    told = {"clean": Score(**kept["clean"]), "biased": biased, "lost": tuple(kept["lost"]), "by_class": by_class}
    return Validation(**{**kept, **told})


class Kept:
    """The arrays of one experiment's stages.

    Args:
        folder: Where they lie, a file for every model.
    """

    def __init__(self, material: Material, folder: Path) -> None:
        self.material, self.setting, self.folder = material, material.setting, folder

    def keep(self, name: str, evidence: Evidence, model: nn.Module | None = None) -> None:
        """Write what a model did; of one that is given, also the heatmaps of the shown images."""
        arrays = {
            "correct_clean": evidence.is_correct("clean"),
            "correct_biased": evidence.is_correct("biased"),
            "predicted_clean": predict_classes(evidence.logits_clean),
            "predicted_biased": predict_classes(evidence.logits_biased),
            **probabilities_of(evidence),
        }
        if model is not None:
            arrays["relevance"] = self.material.pictures.heatmaps(model, self.material.shown_rows)
            # what an exported model must give
            arrays["shown_logits"] = evidence.logits_biased[self.material.shown_rows]
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
        return [*found, *compare_pulls({name: self._pull(name) for name in names if data.is_inserted})]

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
        """Return the heatmaps of some images for the model as it came and every method, with the images.

        Nothing, where no test image carries the artifact.
        """
        test, rows = self.setting.data.test_biased, self.material.shown_rows
        if not len(rows):
            return {}
        images, masks = zip(*(test.pixels(int(row)) for row in rows))
        arrays = {"images": np.stack(images), "masks": np.stack(masks)}
        arrays |= {"labels": test.labels[rows], "ids": test.ids[rows]}
        arrays["direction"] = self.material.pictures.direction(rows)
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
        """Return the model as it came and those of the methods (the paper's by default) that have a head to show."""
        wanted = (ORIGINAL, *(Correction.defaults() if methods is None else methods))
        return [name for name in wanted if self._path(name).exists()]

    def _compared(self, methods: Sequence[str] | None) -> list[str]:
        """Return them with the clean-trained reference, where there is one."""
        return [*self._finished(methods), *([CLEAN_TRAINED] if self._path(CLEAN_TRAINED).exists() else ())]

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.npz"


def quality_rows(material: Material, cavs: Mapping[str, CAV], about: Mapping[str, Any]) -> list[Row]:
    """Return how well each CAV fits the artifact; nothing where too few test images carry it.

    Args:
        about: What the rows of an experiment have in common.
    """
    if not material.is_biased_known:
        return []
    clean, biased = material.activations["test_clean"].pooled, material.activations["test_biased"].pooled
    is_inserted = material.data.is_inserted
    if is_inserted:
        # every image once, without or with the artifact: pairs would not be independent
        without, within = clean[::2], biased[1::2]
    else:
        without, within = clean, biased
    held_out = np.concatenate([without, within])
    is_biased = np.arange(len(held_out)) >= len(without)
    rows = []
    for name, cav in cavs.items():
        told = {"method": f"cav:{name}", "cav": name, "split": "test", **about}
        if is_inserted:
            direction = cav.directions_[0]
            rows.append(row_of_quality("alignment_sample", alignment_sample(direction, biased - clean), **told))
            rows.append(row_of_quality("alignment_mean", alignment_mean(direction, biased - clean), **told))
        rows.append(row_of_quality("cav_auc", cav_auc(cav, held_out, is_biased), **told))
    return rows


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


log = logging.getLogger(__name__)


_SHOWN = 6  # images that look wrongly marked, the most suspicious ones

_SIDE = 128  # pixels of their pictures: an artifact may be small

_LEAST_OTHERS = 2  # images of other classes, for the doctor to know where those lie


def examine_direction(
    experiment: Experiment,
    *,
    names: Mapping[int, str] | None = None,
    is_marked: np.ndarray | None = None,
    progress: Progress = silent,
) -> Diagnosis:
    """Ask the doctor, and keep what he says in the run folder, where the report looks for it.

    ``doctor.json`` holds the words and numbers, ``wrong_marks.npz`` pictures of images that look wrongly marked.

    Args:
        names: What the owner of the images calls them, by id; their id by default.
        is_marked: By id, which artifact bits a person gave: those that the labelling page proposed are no truth to
            examine by. None where nobody tells them apart.
    """
    setting, material, folder = experiment.setting, experiment.material, experiment.run
    needs_pairs = CAV.named(setting.cav).needs_pairs

    def work() -> str:
        train, inside = material.activations["train"], material.cav_images
        if needs_pairs:
            train = material.paired_train
            inside = find_pairs(train).T.ravel()  # of all classes, as the direction itself; the clean ones first
        bits = np.asarray(train.has_artifact)
        others = train.pooled[(train.labels != setting.data.biased_class) & ~bits]
        # who inserts, knows
        marked = None if needs_pairs or is_marked is None else is_marked[train.ids[inside]]
        basis = choose_basis(bits[inside], marked)
        inside = inside[basis.rows]
        ids = train.ids[inside].tolist()
        found = examine_cav(
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
        diagnosis = basis.tell(found)
        _keep_wrong_marks(experiment, diagnosis.wrong_marks[:_SHOWN], names)  # here, as names may change between runs
        return diagnosis.to_json()

    text = folder.stage("doctor", work)
    write_text(folder.path / "doctor.json", text)
    return Diagnosis.from_json(text)


def _keep_wrong_marks(experiment: Experiment, marks: Sequence[WrongMark], names: Mapping[int, str] | None) -> None:
    """Keep pictures of the images that look wrongly marked, in the doctor's order, where there are any."""
    if not marks:
        return
    images = experiment.setting.data.train
    rows = {id_ if names is None else names[id_]: row for row, id_ in enumerate(images.ids.tolist())}
    pictures = small_pictures(images, (rows[mark.id] for mark in marks), side=_SIDE)
    with written_atomically(experiment.run.path / "wrong_marks.npz") as temporary:
        np.savez_compressed(temporary, pictures=pictures)


def doubt_concepts(experiment: Experiment) -> list[str]:
    """Warn of what is removed or kept by bits that mean nothing here: it costs accuracy and corrects nothing."""
    setting = experiment.setting
    marked = {
        concept.name: (concept.rows, concept.told_by)
        for concept in (*setting.removed, *setting.protected)
        if isinstance(concept.told_by, np.ndarray)
    }
    if not marked:
        return []

    def work() -> list[str]:
        pooled, doubts = experiment.material.activations["train"].pooled, []
        for name, (rows, bits) in marked.items():
            seen = glance_at(pooled[rows], bits, cav=setting.cav, seed=setting.tuning.seed)
            if not seen.is_visible:
                doubts.append(
                    f"{name}: the {bits.sum()} training images with it are told from the {(~bits).sum()} without no "
                    f"better (held-out AUC {seen.auc:.2f}) than with shuffled bits. It does not show in this layer, "
                    "its bits are wrong, or they are too few: leave it out."
                )
        return doubts

    found: list[str] = experiment.run.stage("concepts", work)
    for sentence in found:
        log.warning(sentence)
    return found
