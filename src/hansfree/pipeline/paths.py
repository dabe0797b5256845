"""A correction along its strengths in a run: one contract for latent and deep methods."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import TypeAdapter
from torch import Tensor, nn
from torch.utils.data import ConcatDataset

from hansfree._internal.progress import without_warnings
from hansfree._internal.store import RunStore
from hansfree.cavs import CAV
from hansfree.corrections import (
    Candidate,
    CAVCorrection,
    DeepCorrection,
    DeepValidation,
    LatentCorrection,
    Need,
    Selection,
    TrainingImages,
    Validation,
    ValidationScore,
    Validator,
    choose_candidate,
    split_name,
)
from hansfree.corrections.training import TrainedHead, group_strengths
from hansfree.errors import HansfreeError
from hansfree.evaluation import HeldOutFeatures, judge_head
from hansfree.metrics import Evidence, Score, compute_scores, predict_classes
from hansfree.pipeline.workspace import MethodSpec, Workspace
from hansfree.reasons import Reason, ReasonCode


class Task(NamedTuple):
    """A group of a method's strengths, a further seed of it, or without a kind its selection and scores.

    The shard of a set that begins with an image is a task of the executor.
    """

    method: str  # or set
    kind: Literal["strengths", "seed", "shard"] | None = None
    number: int = 0

    @property
    def name(self) -> str:
        """The stage's name in the run."""
        return self.method if self.kind is None else f"{self.method} {self.kind} {self.number}"


@dataclass(frozen=True)
class Record:
    """What a task stores of a head that it trained: its weights are not stored."""

    strength: float
    is_finite: bool
    history: tuple[Validation, ...]
    scores: list[Score]


class MethodPath:
    """One method of a run: it trains a candidate per strength, selects one on validation images, and evaluates it.

    `HeadPath` and `NetworkPath` have the same methods; a candidate is a `TrainedHead` in both.

    Args:
        strengths: To try, in order; those of the setting or the method by default.
    """

    min_groups: ClassVar[int] = 3  # trained in parallel: the selected one is trained again, so two gain nothing

    def __init__(
        self, workspace: Workspace, run: RunStore, spec: MethodSpec, seed: int, strengths: Sequence[float] | None = None
    ) -> None:
        self.workspace, self.run, self.spec, self.seed, self.name = workspace, run, spec, seed, spec.name
        given = workspace.setting.strengths.get(split_name(spec.name)[0])  # for all directions of a method
        self.has_strength = bool(spec.strengths)
        # a method without strength multiplies nothing by it
        self.strengths = strengths or (sorted({*(given or spec.strengths)}) if self.has_strength else [1.0])

    def select(self, finals: Sequence[Validation]) -> Selection:
        """Select among the candidates so far, given the last validation of each."""
        rule, original = self.workspace.setting.rule, self.workspace.original_validation
        return rule.selector(original, has_strength=self.has_strength)(finals)

    def close(self) -> None:
        """Delete temporary files of a finished stage."""

    def caveats(self, *, inserts_artifact: bool) -> tuple[Reason, ...]:
        """Say of a method that is trained on the insertions that it is judged by that these are transplants."""
        kind = self.workspace.data.transplant
        is_flattered = kind is not None and inserts_artifact
        return (Reason(ReasonCode.TRAINED_ON_TRANSPLANTS, {"kind": kind}),) if is_flattered else ()


class HeadPath(MethodPath):
    """The heads of a latent method, trained on cached activations."""

    @cached_property
    def method(self) -> LatentCorrection:
        """The correction along the run's direction, with images and masks if it needs them."""
        workspace, setting = self.workspace, self.workspace.setting
        return self.spec.make(  # type: ignore[no-any-return]
            cav=workspace.corrected_cav(self.spec.cav or setting.cav),
            images=workspace.masked_train if self.spec.uses_masks else setting.data.train,
            tuning=replace(setting.tuning, seed=self.seed),
        )

    def check(self) -> None:
        """Raise if the activations do not suit the method."""
        self.method.check(self.workspace.cut, self._images)

    def candidates(self) -> Iterator[TrainedHead]:
        """Yield heads as they come from training; those of finished groups come from the run store.

        What a group gave is stored when the next head is asked for, so that a stopped method resumes with the next one.
        """
        recorded = self._recorded
        # Only the last group may be smaller, and stays the last: what is left is grouped as it is among all.
        left = [strength for strength in self.strengths if strength not in recorded]
        trained = self._train(left) if left else iter(())
        for number, group in enumerate(self.groups):
            records = []
            for strength in group:
                if strength in recorded:
                    head = recorded[strength]
                    yield TrainedHead(strength, partial(self._train_again, strength), head.is_finite, head.history)
                else:
                    candidate = next(trained)
                    yield candidate
                    scores = self.score(candidate)
                    records.append(asdict(Record(strength, candidate.is_finite, candidate.history, scores)))
            if records and len(self.groups) > 1:
                stage = Task(self.name, "strengths", number).name
                self.run.forget(stage)  # of other strengths
                self.run.stage(stage, lambda records=records: records)  # type: ignore[misc]

    def score(self, candidate: TrainedHead) -> list[Score]:
        """Return a head's scores on the test images."""
        if candidate.strength in self._recorded:
            return self._recorded[candidate.strength].scores
        if self._scored is None or self._scored[0] is not candidate:
            evidence = judge_head(self.workspace.cut, candidate.state, self._held_out, device=self.workspace.device)
            self._scored = candidate, compute_scores(evidence, per_class=False)
        return self._scored[1]

    _scored: tuple[TrainedHead, list[Score]] | None = None  # the last one

    def model_of(self, candidate: TrainedHead) -> nn.Module:
        """Return the model with a head."""
        return self.method.install(self.workspace.setting.model, self.workspace.cut, self._images, candidate.state)

    def evidence(self, candidate: TrainedHead, model: nn.Module) -> Evidence:
        """Return the evidence; with heatmaps, unless their masks were localised by what the method trained on."""
        is_circular = Need.MASKS in self.method.info.needs or isinstance(self.method, CAVCorrection)
        is_scored = self.workspace.data.has_test_masks or self.workspace.setting.scores_localised or not is_circular
        explained = model if is_scored else None
        return self.workspace.judge(candidate.state, self._edit, explained=explained)

    def repeat(self) -> Evidence:
        """Train one head and return its evidence, without heatmaps."""
        (head,) = self._train(self.strengths[:1], is_validated=False)
        return self.workspace.judge(head.state, self._edit)

    @property
    def details(self) -> tuple[Reason, ...]:
        """The method's own facts for the report."""
        held_out, method = self.workspace.activations, self.method
        facts = method.details(self._images, clean=held_out["test_clean"], biased=held_out.get("test_biased"))
        is_along_pairs = (
            isinstance(method, CAVCorrection) and CAV.named(self.spec.cav or self.workspace.setting.cav).needs_pairs
        )
        return (*facts, *self.caveats(inserts_artifact=Need.PAIRS in method.info.needs or is_along_pairs))

    @cached_property
    def groups(self) -> list[list[float]]:
        """The strengths that are trained together."""
        return group_strengths(self.workspace.cut, self.strengths, self.workspace.setting.tuning)

    def train_group(self, number: int) -> list[Record]:
        """Train one of the groups."""
        heads = self._train(self.groups[number])
        return [Record(head.strength, head.is_finite, head.history, self.score(head)) for head in heads]

    def _train(self, strengths: Sequence[float], *, is_validated: bool = True) -> Iterator[TrainedHead]:
        return self.method.train(
            self.workspace.cut,
            self._images,
            strengths,
            watch=self.workspace.validator(self._edit) if is_validated else None,
            progress=self.workspace.progress,
            label=self.name,
        )

    def _train_again(self, strength: float) -> dict[str, Tensor]:
        """Return the weights of a head that another task trained, from training its group again."""
        (group,) = (group for group in self.groups if strength in group)
        with without_warnings():  # they were logged the first time
            heads = self._train(group, is_validated=False)
            return next(head.state for head in heads if head.strength == strength)

    @cached_property
    def _recorded(self) -> dict[float, Record]:
        """The heads of finished tasks, if their groups are the same."""
        found: dict[float, Record] = {}
        for number, group in enumerate(self.groups):
            stage = Task(self.name, "strengths", number).name
            if self.run.has(stage):
                records = TypeAdapter(list[Record]).validate_python(self.run.read(stage))
                if [record.strength for record in records] == group:
                    found |= {record.strength: record for record in records}
        return found

    @cached_property
    def _images(self) -> Any:
        return self.workspace.train_for(self.method)

    @cached_property
    def _edit(self) -> nn.Module | None:
        return self.method.edit(self._images)

    @cached_property
    def _held_out(self) -> HeldOutFeatures:
        return self.workspace.held_out(self._edit)


class NetworkPath(MethodPath):
    """The networks of a deep method, each trained from the original weights.

    Epochs are checkpointed in the run directory, so that a stopped run resumes within a strength.
    """

    min_groups = 2  # the selected one is read from its checkpoint

    @cached_property
    def method(self) -> DeepCorrection:
        """The correction for the run's data."""
        setting = self.workspace.setting
        return self.spec.make(data=setting.data, tuning=replace(setting.network, seed=self.seed))  # type: ignore[no-any-return]

    def check(self) -> None:
        """Raise if the images do not suit the method."""
        self.method.check(TrainingImages.of(self.workspace.data.train))

    def candidates(self) -> Iterator[TrainedHead]:
        """Yield a validated network for every strength, in order; one that diverged is not finite, without weights."""
        self._errors: list[HansfreeError] = []
        self._scores: dict[int, ValidationScore] = {}  # of the networks that did not fail, by position
        try:
            validation = self._validation
        except HansfreeError as error:  # nothing to compare the networks by
            self._errors.append(error)
            yield from (TrainedHead(strength, dict, False, (self._validate(None),)) for strength in self.strengths)
            return
        for index, candidate in enumerate(self._train(self.strengths)):
            network = candidate.model
            if candidate.error is not None:
                self._errors.append(candidate.error)
            if validation is not None and network is not None:
                self._scores[index] = validation.score(network)
            final = self._validate(network)
            state = dict if network is None else network.state_dict
            yield TrainedHead(candidate.strength, state, network is not None and final.is_finite, (final,))

    def score(self, candidate: TrainedHead) -> list[Score]:
        """Return a network's scores on the test images."""
        model = self.model_of(candidate) if candidate.state else None
        return compute_scores(self.workspace.evidence_of(model), per_class=False)

    def select(self, finals: Sequence[Validation]) -> Selection:
        """Select by the run's rule, or without counter-examples by `DeepValidation`."""
        if self._errors and not any(final.is_finite for final in finals):
            errors = list(dict.fromkeys(str(error).rstrip(".") for error in self._errors))
            return Selection(None, Reason(ReasonCode.TRAINING_FAILED, {"errors": errors}))
        original = self._original_score
        if original is None:
            return super().select(finals)
        indices, scores = [*self._scores], [*self._scores.values()]
        place = choose_candidate(
            scores,
            original,
            budget=self.workspace.setting.rule.budget,
            strengths=[(self.name, self.strengths[index]) for index in indices],
        )
        if place is None:
            return Selection(None, Reason(ReasonCode.NO_BETTER_THAN_ORIGINAL))
        best = scores[place]
        values = {"evidence": best.evidence, "effect": best.effect, "original": original.effect}
        return Selection(indices[place], Reason(ReasonCode.BEST_BY_EVIDENCE, {"candidates": len(scores), **values}))

    def model_of(self, candidate: TrainedHead) -> nn.Module:
        """Return the network of a candidate."""
        network = copy.deepcopy(self.workspace.setting.model)
        network.load_state_dict(candidate.state)
        return network.cpu().eval()

    def evidence(self, candidate: TrainedHead, model: nn.Module) -> Evidence:
        """Return the evidence, with TCAV along a CAV that is fitted to the network's own activations.

        The layer's output has changed, so the activations are computed again, in a temporary directory.
        """
        share, sets = self.workspace.relevance_of(model), ("train", "test_clean", "test_biased")
        with TemporaryDirectory(dir=self.workspace.folder, prefix=".network-") as temporary:
            folder = Path(temporary)
            own = self.workspace.of_network(model, folder, cache=folder, name=self.name, sets=sets)
            return replace(own.judge(own.cut.head_parameters(), None), relevance=share)

    def repeat(self) -> Evidence | None:
        """Train one network and return its evidence; None if it diverged."""
        candidate = next(self.candidates())
        return self.evidence(candidate, self.model_of(candidate)) if candidate.is_finite else None

    @property
    def details(self) -> tuple[Reason, ...]:
        """That TCAV is not measured along the run's own CAV, and what flatters the method."""
        caveats = self.caveats(inserts_artifact=self.method.info.inserts_artifact)
        return (Reason(ReasonCode.TCAV_REFITTED), *caveats)

    @property
    def groups(self) -> list[list[float]]:
        """Each strength: a network is trained apart from the others."""
        return [[strength] for strength in self.strengths]

    def train_group(self, number: int) -> list[Record]:
        """Train one strength, which leaves its checkpoint."""
        for _ in self._train(self.groups[number]):
            pass
        return []

    def _train(self, strengths: Sequence[float]) -> Iterator[Candidate]:
        setting = self.workspace.setting
        return self.method.candidates(
            setting.model, setting.data.train, strengths, folder=self._checkpoints, progress=self.workspace.progress
        )

    def close(self) -> None:
        """Delete the checkpoints."""
        shutil.rmtree(self._checkpoints, ignore_errors=True)

    @property
    def _checkpoints(self) -> Path:
        return self.run.path / "checkpoints" / f"{self.name}-{self.seed}"

    @cached_property
    def _validation(self) -> DeepValidation | None:
        """Association, where too few held-out images have the artifact to select by accuracy."""
        setting = self.workspace.setting
        if not setting.rule.needs_derivative:
            return None
        return DeepValidation(
            setting.model,
            setting.data.train,
            ConcatDataset([images for images in (setting.data.val_clean, setting.data.val_biased) if len(images)]),
            transplants=False,  # `find_transplants` has found none
            seed=setting.tuning.seed,
            device=self.workspace.device,
        )

    @cached_property
    def _original_score(self) -> ValidationScore | None:
        return None if self._validation is None else self._validation.score(self.workspace.setting.model)

    @cached_property
    def _validator(self) -> Validator:
        return self.workspace.validator()

    def _validate(self, network: nn.Module | None) -> Validation:
        data = self.workspace.data
        logits = [self.workspace.logits_of(network, images) for images in (data.val_clean, data.val_biased)]
        is_finite = network is not None and all(bool(np.isfinite(each).all()) for each in logits)
        clean, biased = map(predict_classes, logits)
        return self._validator.judge(clean, biased, is_finite, None)
