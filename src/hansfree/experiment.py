"""From a biased model to a table of proof: cache, CAVs, corrections, evaluation, stage by stage in a run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from safetensors.torch import save_file
from torch import nn

from hansfree.activations import Activations, collect_activations, compute_features, cut_again
from hansfree.cavs import CAV, alignment_mean, alignment_sample, cav_auc, load_cavs, save_cavs
from hansfree.corrections import Correction, Projection, RRClArC
from hansfree.datasets import InMemory
from hansfree.errors import DataError
from hansfree.evaluation import Pairs, State, check_pairs, count_position_signs, judge_head, pair_features
from hansfree.files import written_atomically
from hansfree.heatmaps import artifact_relevance, compute_heatmaps
from hansfree.metrics import MIN_GROUP, Evidence, Score, compute_scores, paired_difference, predict_classes
from hansfree.models import predict_logits
from hansfree.progress import Progress, silent
from hansfree.results import Row, row_of_quality, rows_of
from hansfree.runs import Run
from hansfree.selection import BalancedRule, Choice, StrengthPath, Validation, Validator, walk_path
from hansfree.splitting import Split
from hansfree.training import FineTuning, Heads

SETS = ("train", "val_clean", "val_biased", "test_clean", "test_biased")
_EXPLAINED = 96  # images whose heatmaps are scored
_SHOWN = 6  # images whose heatmaps are shown


@dataclass(frozen=True, eq=False, kw_only=True)
class Setting:
    """A biased model, the data that show it, and how it is to be corrected.

    The biased sets are the clean ones with the artifact inserted into every image.
    """

    name: str
    model: nn.Module
    layer: str
    train: InMemory
    val_clean: InMemory
    val_biased: InMemory
    test_clean: InMemory
    test_biased: InMemory
    biased_class: int
    is_localized: bool
    tuning: FineTuning
    cav: str = "signal"
    clean_trained: nn.Module | None = None
    strengths: Mapping[str, Sequence[float]] = field(default_factory=dict)  # per method, instead of its own grid
    rule: BalancedRule = field(default_factory=BalancedRule)

    def __post_init__(self) -> None:
        """Refuse data that could not prove anything."""
        for part in ("val", "test"):
            clean, biased = getattr(self, f"{part}_clean"), getattr(self, f"{part}_biased")
            check_pairs(clean.has_artifact, biased.has_artifact)
        classes, counts = np.unique(self.val_clean.labels, return_counts=True)
        if counts.min() < MIN_GROUP:
            raise DataError(
                f"There are only {counts.min()} validation images of class {classes[counts.argmin()]}; with fewer than "
                f"{MIN_GROUP} its accuracy cannot be known, and no strength can be chosen by it."
            )


class Experiment:
    """One setting in one run folder; every stage is kept, so that a killed run goes on where it stopped."""

    def __init__(self, setting: Setting, run: Run, *, progress: Progress = silent) -> None:
        self.setting, self.run, self.progress = setting, run, progress

    def rows(self) -> list[Row]:
        """Do all stages that are not done yet, and return all rows."""
        rows = self.run.stage("cavs", self._cavs) + self.run.stage("original", self._original)
        for name in Correction.members():
            rows += self._corrected(name)["rows"]
        return [Row(**row) for row in rows]

    def selections(self) -> dict[str, Any]:
        """Say what was chosen for each method, and why."""
        return {name: self._corrected(name)["selection"] for name in Correction.members()}

    def paired(self) -> dict[str, dict[str, tuple[float, float]]]:
        """Return by how much RR-ClArC is right more often than each rival on the same images, with standard errors."""
        kept = {path.stem: np.load(path) for path in (self.run.path / "stages").glob("*.npz")}
        ours = kept.get(RRClArC.name)
        if ours is None:
            return {}
        return {
            name: {
                f"accuracy_{kind}": paired_difference(ours[f"correct_{kind}"], theirs[f"correct_{kind}"])
                for kind in ("clean", "biased")
            }
            for name, theirs in sorted(kept.items())
            if name != RRClArC.name
        }

    def shown(self) -> dict[str, np.ndarray]:
        """Return the heatmaps of some images for every method, with the images."""
        rows = self._shown_rows
        test = self.setting.test_biased
        kept = {"images": test.images[rows], "masks": test.masks[rows], "labels": test.labels[rows]}
        for path in sorted((self.run.path / "stages").glob("*.npz")):
            kept[f"relevance/{path.stem}"] = np.load(path)["relevance"]
        return kept

    # The stages

    def _original(self) -> list[dict[str, Any]]:
        about = {"split": "test", "chosen": 1, **self._about}
        evidence = self._explained(self.setting.model, self.cut.head_parameters(), None, name="original")
        rows = rows_of(compute_scores(evidence), method="original", **about)
        if (model := self.setting.clean_trained) is not None:
            reference = Evidence(
                labels=self.setting.test_clean.labels,
                biased_class=self.setting.biased_class,
                logits_clean=predict_logits(model, self.setting.test_clean),
                logits_biased=predict_logits(model, self.setting.test_biased),
            )
            rows += rows_of(compute_scores(reference), method="clean-trained", **about)
        return [asdict(row) for row in rows]

    def _cavs(self) -> list[dict[str, Any]]:
        train = self.activations["train"]
        if train.has_artifact is None:
            raise DataError("The training data do not say which images carry the artifact.")
        inside = np.flatnonzero(train.labels == self.setting.biased_class)
        X, has_artifact = train.pooled[inside], train.has_artifact[inside]
        members = self.progress(CAV.members().items(), total=len(CAV.members()), label="CAVs")
        cavs = {name: member().fit(X, has_artifact) for name, member in members}
        save_cavs(self.run.path / "cavs.safetensors", cavs)
        clean, biased = self.activations["test_clean"].pooled, self.activations["test_biased"].pooled
        # every image once, without or with the artifact: pairs would not be independent
        held_out = np.concatenate([clean[::2], biased[1::2]])
        is_biased = np.arange(len(held_out)) >= len(clean[::2])
        rows = []
        for name, cav in cavs.items():
            about = {"method": f"cav:{name}", "cav": name, "split": "test", **self._about}
            direction = cav.directions_[0]
            rows.append(row_of_quality("alignment_sample", alignment_sample(direction, biased - clean), **about))
            rows.append(row_of_quality("alignment_mean", alignment_mean(direction, biased - clean), **about))
            rows.append(row_of_quality("cav_auc", cav_auc(cav, held_out, is_biased), **about))
        return [asdict(row) for row in rows]

    def _corrected(self, name: str) -> dict[str, Any]:
        return self.run.stage(name, lambda: self._correct(name))  # type: ignore[no-any-return]

    def _correct(self, name: str) -> dict[str, Any]:
        """Train one method along its strengths, choose on validation images, score all on test images."""
        setting, train = self.setting, self.activations["train"]
        method = Correction.named(name).for_run(cav=self.cav, images=setting.train, tuning=setting.tuning)
        edit = method.inference_edit(train)
        pairs, validator = self._test_pairs(edit), self._validator(edit)
        strengths = sorted(setting.strengths.get(name, method.grid)) if method.has_strength else [0.0]
        path = walk_path(
            method.train(self.cut, train, strengths, watch=validator, progress=self.progress),
            self._choose if method.has_strength else self._take_the_only_one,
            lambda head: compute_scores(judge_head(self.cut, head.state, pairs)),
        )
        chosen_scores: list[Score] = []
        if path.best is not None:
            model = method.install(setting.model, self.cut, train, path.best.state)
            with written_atomically(self.run.path / "corrected" / f"{name}.safetensors") as temporary:
                save_file({key: value.contiguous() for key, value in model.state_dict().items()}, temporary)
            chosen_scores = compute_scores(self._explained(model, path.best.state, edit, name=name))
        return {
            "rows": [asdict(row) for row in self._path_rows(method, path, chosen_scores)],
            "selection": {
                "rule": str(setting.rule),
                "strength": path.best.strength if path.best and method.has_strength else None,
                "reason": path.choice.reason,
                "diverged": [
                    strength if method.has_strength else None
                    for strength, history in zip(path.strengths, path.histories)
                    if not history[-1].is_finite
                ],
                "admissible": any(not self._objection(history[-1]) for history in path.histories),
            },
        }

    def _choose(self, finals: Sequence[Validation]) -> Choice:
        return self.setting.rule.choose(finals, self._original_validation)

    def _take_the_only_one(self, finals: Sequence[Validation]) -> Choice:
        """A method without strength has nothing to choose; where the rule would reject it, the table says so."""
        objection = self._objection(finals[0])
        return Choice(0, "has no strength to choose" + (f", but {objection}" if objection else ""))

    def _objection(self, final: Validation) -> str:
        return self.setting.rule.objection(final, self._original_validation)

    def _path_rows(self, method: Correction, path: StrengthPath, chosen_scores: list[Score]) -> list[Row]:
        rows: list[Row] = []
        for i, (strength, history, scores) in enumerate(zip(path.strengths, path.histories, path.scores)):
            about = {**self._about, **method.describe(), "chosen": int(i == path.choice.index)}
            about["strength"] = strength if method.has_strength else None
            for epoch, seen in enumerate(history, start=1):
                rows += rows_of([seen.clean, seen.biased], epoch=epoch, split="val", **about)
            rows += rows_of(chosen_scores if i == path.choice.index else scores, split="test", **about)
        return rows

    # What the stages share, made when first needed

    @cached_property
    def activations(self) -> dict[str, Activations]:
        """The layer's output for all five sets, on disk in the run folder."""
        return {
            name: collect_activations(
                self.setting.model,
                self.setting.layer,
                getattr(self.setting, name),
                folder=self.run.path / "activations",
                device=self.setting.tuning.device,
                progress=self.progress,
            )
            for name in SETS
        }

    @cached_property
    def cut(self) -> Split:
        """The model in three parts."""
        return cut_again(self.setting.model, self.activations["train"])

    @cached_property
    def cav(self) -> CAV:
        """The CAV that the corrections use."""
        return load_cavs(self.run.path / "cavs.safetensors")[self.setting.cav]

    @property
    def _about(self) -> dict[str, Any]:
        return {"experiment": self.setting.name, "seed": self.setting.tuning.seed}

    def _test_pairs(self, edit: nn.Module | None) -> Pairs:
        clean, biased = self.activations["test_clean"], self.activations["test_biased"]
        return pair_features(self.cut, clean, biased, biased_class=self.setting.biased_class, cav=self.cav, edit=edit)

    def _validator(self, edit: nn.Module | None) -> Validator:
        clean, biased = (
            compute_features(self.cut, self.activations[name], edit=edit) for name in ("val_clean", "val_biased")
        )
        return Validator(clean, biased, self.setting.biased_class, self._original_predictions)

    @cached_property
    def _original_predictions(self) -> np.ndarray:
        features = compute_features(self.cut, self.activations["val_clean"])
        return predict_classes(Heads(self.cut, 1, self.setting.tuning.device).logits(features)[0].double().numpy())

    @cached_property
    def _original_validation(self) -> Validation:
        return self._validator(None)(Heads(self.cut, 1, self.setting.tuning.device))[0]

    @cached_property
    def _shown_rows(self) -> np.ndarray:
        """Test images that the artifact pulls into the biased class come first: there is something to see."""
        evidence = judge_head(self.cut, self.cut.head_parameters(), self._test_pairs(None))
        clean, biased = predict_classes(evidence.logits_clean), predict_classes(evidence.logits_biased)
        pulled = (clean == evidence.labels) & (clean != biased) & (biased == self.setting.biased_class)
        return np.argsort(~pulled, kind="stable")[:_SHOWN]

    def _explained(self, model: nn.Module, state: State, edit: nn.Module | None, *, name: str) -> Evidence:
        """Gather all evidence on a model, with what needs the layer's positions and the pixels."""
        setting = self.setting
        biased = self.activations["test_biased"]
        signs = count_position_signs(self.cut, state, biased, self.cav, biased_class=setting.biased_class, edit=edit)
        shown = setting.test_biased.batch(self._shown_rows)
        share = None
        if setting.is_localized:  # on the first images, not on the shown ones, which were picked for their effect
            scored = setting.test_biased.batch(np.arange(min(_EXPLAINED, len(biased))))
            relevance = compute_heatmaps(model, scored.image, setting.biased_class, pass_through=(Projection,))
            share = artifact_relevance(relevance, scored.mask)
        evidence = judge_head(self.cut, state, self._test_pairs(edit), position_signs=signs, relevance=share)
        with written_atomically(self.run.path / "stages" / f"{name}.npz") as temporary:
            np.savez(
                temporary,
                relevance=compute_heatmaps(
                    model, shown.image, setting.biased_class, pass_through=(Projection,)
                ).numpy(),
                correct_clean=evidence.is_correct("clean"),
                correct_biased=evidence.is_correct("biased"),
            )
        return evidence
