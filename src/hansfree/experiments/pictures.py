"""Where models and CAVs look in a setting's images: heatmaps, and masks of the artifact."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property

import numpy as np
from torch import nn

from hansfree.cavs import CAV
from hansfree.corrections import Projection
from hansfree.datasets import ExampleSet
from hansfree.errors import SplitError
from hansfree.experiments.setting import Setting
from hansfree.heatmaps import (
    Explanation,
    artifact_relevance,
    compute_cav_heatmaps,
    compute_heatmaps,
    explanation_of,
    localise_artifact,
)
from hansfree.progress import Progress, silent
from hansfree.splitting import on_device

log = logging.getLogger(__name__)

_EXPLAINED = 96  # images whose heatmaps are scored


class Pictures:
    """Heatmaps on a setting's test images with the artifact.

    Args:
        cav: Gives the direction that tells where the artifact is; heatmaps of models are there before it.
    """

    def __init__(self, setting: Setting, cav: Callable[[], CAV]) -> None:
        self.setting, self.data, self._cav = setting, setting.data, cav

    @cached_property
    def explanation(self) -> Explanation:
        """How heatmaps are made: one way for the model as it came and all corrected ones, so that they compare."""
        return explanation_of(self.setting.model, self.data.test_clean.batch([0]).image, pass_through=(Projection,))

    def heatmaps(self, model: nn.Module, rows: np.ndarray) -> np.ndarray:
        """Return a model's relevance for the biased class on some biased test images; of none, where there are none."""
        if not len(rows):
            return np.zeros((0, *self.data.test_clean.pixels(0)[1].shape), dtype=np.float32)
        images = self.data.test_biased.batch(rows).image
        try:
            found = compute_heatmaps(
                on_device(model, self._device),
                images,
                self.data.biased_class,
                explanation=self.explanation,
                pass_through=(Projection,),
            )
        except SplitError as error:  # weights so large that rounding alone changes the logits: nothing can be said
            log.warning("No heatmaps: %s", error)
            return np.full((len(images), *images.shape[2:]), np.nan, dtype=np.float32)
        return found.numpy()

    def direction(self, rows: np.ndarray) -> np.ndarray:
        """Return what the CAV sees in some biased test images: the relevance for the score along it."""
        images = self.data.test_biased.batch(rows).image
        model = on_device(self.setting.model, self._device)
        return compute_cav_heatmaps(model, self.setting.layer, self._cav(), images).numpy()

    def relevance(self, model: nn.Module) -> np.ndarray:
        """Return per image how much of a model's heatmap lies on the artifact."""
        return artifact_relevance(self.heatmaps(model, self._scored), self._scored_masks)

    def localise(self, images: ExampleSet, rows: np.ndarray, *, progress: Progress = silent) -> np.ndarray:
        """Return masks of where the CAV finds the artifact."""
        model = on_device(self.setting.model, self._device)
        return localise_artifact(model, self.setting.layer, self._cav(), images, rows, progress=progress)

    @property
    def _device(self) -> str:
        return self.setting.tuning.device

    @property
    def _scored(self) -> np.ndarray:
        """The first images, not the shown ones, which were picked for their effect."""
        return np.arange(min(_EXPLAINED, len(self.data.test_biased)))

    @cached_property
    def _scored_masks(self) -> np.ndarray:
        test = self.data.test_biased
        return test.batch(self._scored).mask.numpy() if self.data.has_masks else self.localise(test, self._scored)
