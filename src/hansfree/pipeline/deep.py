"""Corrections of the whole network in a run: one network per strength, validated and scored on images."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from torch import nn
from torch.utils.data import ConcatDataset

from hansfree.activations import CachePass
from hansfree.cavs import CAV
from hansfree.corrections import (
    DeepCorrection,
    DeepValidation,
    Selection,
    Validation,
    ValidationScore,
    Validator,
    choose_candidate,
)
from hansfree.corrections.training import TrainedHead
from hansfree.data import ImageDataset
from hansfree.errors import HansfreeError
from hansfree.metrics import Evidence, Score, compute_scores
from hansfree.pipeline.paths import MethodPath
from hansfree.pipeline.workspace import Workspace


@dataclass(frozen=True, eq=False)
class TrainedNetwork(TrainedHead):
    """A whole network after training with one strength; None where training failed."""

    network: nn.Module | None


class NetworkPath(MethodPath[DeepCorrection]):
    """The networks of a deep method, each trained from the original weights.

    Epochs are checkpointed in the run directory, so that a stopped run resumes within a strength.
    """

    def candidates(self) -> Iterator[TrainedNetwork]:
        """Yield a validated network for every strength, in order; one that diverged is not finite."""
        self._errors: list[HansfreeError] = []
        self._scores: dict[int, ValidationScore] = {}
        setting = self.workspace.setting
        try:
            validation = self._validation
        except HansfreeError as error:  # nothing to compare the networks by
            self._errors.append(error)
            failed = (self._validate(None),)
            yield from (TrainedNetwork(strength, dict, False, failed, None) for strength in self.strengths)
            return
        path = self.method.candidates(
            setting.model, setting.data.train, self.strengths, folder=self._checkpoints, progress=self.progress
        )
        for index, candidate in enumerate(path):
            network = candidate.model
            if candidate.error is not None:
                self._errors.append(candidate.error)
            if validation is not None and network is not None:
                self._scores[index] = validation.score(network)
            final = self._validate(network)
            yield TrainedNetwork(
                candidate.strength,
                dict if network is None else network.state_dict,
                is_finite=network is not None and final.is_finite,
                history=(final,),
                network=network,
            )

    def score(self, candidate: TrainedHead) -> list[Score]:
        """Return a network's scores on the test images."""
        return compute_scores(self.workspace.evidence_of(_network_of(candidate)), per_class=False)

    def select(self, finals: Sequence[Validation]) -> Selection:
        """Select by the run's rule, or without counter-examples by `DeepValidation`."""
        if self._errors and not any(final.is_finite for final in finals):
            return Selection(None, "; ".join(dict.fromkeys(str(error).rstrip(".") for error in self._errors)))
        if self._validation is None:
            return super().select(finals)
        indices, scores = [*self._scores], [*self._scores.values()]
        place = choose_candidate(scores, self._original_score, budget=self.workspace.setting.rule.budget)
        if place is None:
            return Selection(None, "no strength is better than the original model on validation images")
        best = scores[place]
        return Selection(
            indices[place],
            f"best of {len(scores)} strengths by {best.evidence} on validation images (effect {best.effect:.3g} "
            f"instead of {self._original_score.effect:.3g})",
        )

    def model_of(self, candidate: TrainedHead) -> nn.Module:
        """Return the network of a candidate."""
        network = _network_of(candidate)
        assert network is not None, "a network that failed is never selected"
        return network.cpu().eval()

    def evidence(self, candidate: TrainedHead, model: nn.Module) -> Evidence:
        """Return the evidence, with TCAV along a CAV that is fitted to the network's own activations.

        The layer's output has changed, so the activations are computed again, in a temporary directory.
        """
        share = self.workspace.relevance_of(model)
        with TemporaryDirectory(dir=self.workspace.folder, prefix=".network-") as folder:
            setting = replace(self.workspace.setting, model=model)
            own = _NetworkWorkspace(setting, Path(folder), Path(folder), progress=self.progress)
            own.method = self.name
            return replace(own.judge(own.cut.head_parameters(), None), relevance=share)

    def repeat(self) -> Evidence | None:
        """Train one network and return its evidence; None if it diverged."""
        candidate = next(self.candidates())
        return self.evidence(candidate, self.model_of(candidate)) if candidate.is_finite else None

    @property
    def remark(self) -> str:
        """A note on TCAV, which is not measured along the run's own CAV."""
        return "TCAV is measured along a CAV that was refitted to the corrected network, as all of its layers changed."

    def close(self) -> None:
        """Delete the checkpoints."""
        shutil.rmtree(self._checkpoints, ignore_errors=True)

    @property
    def _checkpoints(self) -> Path:
        return self.run.path / "checkpoints" / f"{self.name}-{self.method.tuning.seed}"

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
    def _original_score(self) -> ValidationScore:
        assert self._validation is not None
        return self._validation.score(self.workspace.setting.model)

    @cached_property
    def _validator(self) -> Validator:
        return self.workspace.validator()

    def _validate(self, network: nn.Module | None) -> Validation:
        data = self.workspace.data
        clean, biased = (self.workspace.logits_of(network, images) for images in (data.val_clean, data.val_biased))
        return self._validator.judge(clean, biased, network is not None, None)


def _network_of(candidate: TrainedHead) -> nn.Module | None:
    assert isinstance(candidate, TrainedNetwork)
    return candidate.network


class _NetworkWorkspace(Workspace):
    """The workspace of a corrected network: its own activations, and the CAV fitted to them."""

    method = ""  # that corrected it, for the progress

    def plan(self, name: str, images: ImageDataset | None = None) -> CachePass:
        """Return the pass of one set, named with the method."""
        return super().plan(f"{name} after {self.method}", getattr(self.data, name) if images is None else images)

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
