"""Corrections of the whole network in a run: one network per strength, validated and scored on images."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from torch import Tensor, nn
from torch.utils.data import ConcatDataset

from hansfree._internal.progress import Progress, silent
from hansfree._internal.store import RunStore
from hansfree.cavs import CAV
from hansfree.corrections import (
    DeepCorrection,
    DeepValidation,
    Selection,
    TrainingImages,
    Validation,
    ValidationScore,
    choose_candidate,
)
from hansfree.corrections.training import TrainedHead
from hansfree.data import ImageDataset
from hansfree.errors import HansfreeError
from hansfree.metrics import Evidence, Score, compute_scores
from hansfree.models import predict_logits
from hansfree.models.surgery import on_device
from hansfree.pipeline.workspace import Workspace

Choose = Callable[[Sequence[Validation]], Selection]


class NetworkPath:
    """The networks of one method, one per strength, each trained from the original weights.

    Epochs are checkpointed in the run directory, so that a stopped run resumes within a strength.

    Args:
        name: Of the method's stage.
    """

    def __init__(
        self,
        workspace: Workspace,
        run: RunStore,
        name: str,
        method: DeepCorrection,
        strengths: Sequence[float],
        *,
        progress: Progress = silent,
    ) -> None:
        self.workspace, self.name, self.method, self.strengths = workspace, name, method, strengths
        self.progress = progress
        self._checkpoints = run.path / "checkpoints" / name
        self._networks: dict[float, nn.Module | None] = {}
        self._scores: list[ValidationScore | None] = []
        self._errors: list[HansfreeError] = []

    def candidates(self) -> Iterator[TrainedHead]:
        """Yield a validated network for every strength, in their order; one that diverged is not finite."""
        setting = self.workspace.setting
        path = self.method.candidates(
            setting.model,
            setting.data.train,
            self.strengths,
            folder=self._checkpoints,
            progress=self.progress,
        )
        for candidate in path:
            network = candidate.model
            self._networks = {candidate.strength: network}
            if candidate.error is not None:
                self._errors.append(candidate.error)
            if self._validation is not None:
                self._scores.append(None if network is None else self._validation.score(network))
            history = (self._validate(network),)
            yield TrainedHead(
                candidate.strength,
                _keep(network),
                is_finite=network is not None and history[0].is_finite,
                history=history,
            )

    def choose(self, by_rule: Choose) -> Choose:
        """Return how a strength is chosen: by the run's rule, or without counter-examples by `DeepValidation`."""

        def choose(finals: Sequence[Validation]) -> Selection:
            if not any(final.is_finite for final in finals) and self._errors:
                return Selection(None, "; ".join(dict.fromkeys(str(error).rstrip(".") for error in self._errors)))
            if self._validation is None:
                return by_rule(finals)
            known = [index for index, score in enumerate(self._scores[: len(finals)]) if score is not None]
            scores = [score for score in self._scores[: len(finals)] if score is not None]
            place = choose_candidate(scores, self._original_score, budget=self.workspace.setting.rule.budget)
            if place is None:
                return Selection(None, "no strength is better than the original model on validation images")
            best = scores[place]
            return Selection(
                known[place],
                f"best of {len(scores)} strengths by {best.evidence} on validation images (effect "
                f"{best.effect:.3g} instead of {self._original_score.effect:.3g})",
            )

        return choose

    def score(self, head: TrainedHead) -> list[Score]:
        """Return what a network does on the test images."""
        data = self.workspace.data
        network = self._networks[head.strength]
        clean = self._logits(network, data.test_clean)
        evidence = Evidence(
            labels=data.test_clean.labels,
            biased_class=data.biased_class,
            logits_clean=clean,
            logits_biased=self._logits(network, data.test_biased) if len(data.test_biased) else clean[:0],
            labels_biased=None if data.is_inserted else data.test_biased.labels,
        )
        return compute_scores(evidence, per_class=False)

    def model_of(self, head: TrainedHead) -> nn.Module:
        """Return the network of a strength."""
        network = copy.deepcopy(self.workspace.setting.model)
        network.load_state_dict(head.state)
        return network.eval()

    def evidence(self, head: TrainedHead, model: nn.Module) -> Evidence:
        """Return what the chosen network does on the test images, with TCAV along a CAV fitted to its own activations.

        The layer's output has changed, so the activations are computed again, in a temporary directory.
        """
        share = self.workspace.relevance_of(model)
        with TemporaryDirectory(dir=self.workspace.folder, prefix=".network-") as folder:
            own = _NetworkWorkspace(
                replace(self.workspace.setting, model=model), Path(folder), Path(folder), progress=self.progress
            )
            return replace(own.judge(own.cut.head_parameters(), None), relevance=share)

    def remark(self) -> str:
        """Return what belongs beside the results."""
        return "TCAV is measured along a CAV that was refitted to the corrected network, as all of its layers changed."

    def close(self) -> None:
        """Delete the checkpoints of a finished stage."""
        shutil.rmtree(self._checkpoints, ignore_errors=True)

    def repeat(self, strength: float) -> Evidence | None:
        """Return what the network of one strength does; None where it diverged."""
        (head,) = (each for each in self.candidates() if each.strength == strength)
        return self.evidence(head, self.model_of(head)) if head.is_finite else None

    @cached_property
    def _validation(self) -> DeepValidation | None:
        """Transplants or association, where too few images with the artifact are held out to choose by accuracy."""
        setting = self.workspace.setting
        if not setting.rule.needs_derivative:
            return None
        return DeepValidation(
            setting.model,
            setting.data.train,
            ConcatDataset([images for images in (setting.data.val_clean, setting.data.val_biased) if len(images)]),
            seed=setting.tuning.seed,
            device=self.workspace.device,
        )

    @cached_property
    def _original_score(self) -> ValidationScore:
        assert self._validation is not None
        return self._validation.score(self.workspace.setting.model)

    def _validate(self, network: nn.Module | None) -> Validation:
        data = self.workspace.data
        clean = self._logits(network, data.val_clean)
        biased = self._logits(network, data.val_biased) if len(data.val_biased) else clean[:0]
        return self.workspace.validator().judge(clean, biased, network is not None, None)

    def _logits(self, network: nn.Module | None, images: ImageDataset) -> np.ndarray:
        """Return the logits of a network; NaN where training diverged."""
        if network is None:
            return np.full((len(images), len(images.class_names)), np.nan)
        return predict_logits(on_device(network, self.workspace.device).eval(), images)


def check_deep(method: DeepCorrection, workspace: Workspace) -> None:
    """Raise DataError if the training images cannot serve a method."""
    method.check(TrainingImages.of(workspace.data.train))


class _NetworkWorkspace(Workspace):
    """The workspace of a corrected network: its own activations, and the CAV fitted to them."""

    @property
    def filled_sets(self) -> list[str]:
        """The sets that the evidence needs: validation images were passed through the network before."""
        return [name for name in super().filled_sets if not name.startswith("val")]

    @cached_property
    def cavs(self) -> dict[str, CAV]:
        """The CAV that models are evaluated along; one of pairs is fitted when it is first asked for."""
        kind, train, inside = self.setting.cav, self.activations["train"], self.cav_images
        if kind not in CAV.from_marks():
            return {}
        return {kind: CAV.named(kind)().fit(train.pooled[inside], np.asarray(train.has_artifact)[inside])}


def _keep(network: nn.Module | None) -> Callable[[], dict[str, Tensor]]:
    return dict if network is None else network.state_dict
