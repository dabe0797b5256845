"""What the stages of an experiment share, made when first needed: the cache, the cut, CAVs and held-out features."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
from torch import nn
from torch.utils.data import DataLoader

from hansfree.activations import Activations, collect_activations, compute_features, cut_again
from hansfree.cavs import CAV, load_cavs
from hansfree.corrections import Projection
from hansfree.datasets import ExampleSet, Masked
from hansfree.evaluation import Pairs, State, count_position_signs, judge_head, pair_features
from hansfree.experiments.setting import Setting
from hansfree.files import written_atomically
from hansfree.heatmaps import artifact_relevance, compute_cav_heatmaps, compute_heatmaps, masks_from_heatmaps
from hansfree.metrics import MIN_GROUP, Evidence, predict_classes
from hansfree.progress import Progress, silent
from hansfree.selection import Validation, Validator
from hansfree.splitting import Split
from hansfree.studies import SETS
from hansfree.training import Heads

_EXPLAINED = 96  # images whose heatmaps are scored
_SHOWN = 6  # images whose heatmaps are shown


class Material:
    """One setting's cache and what follows from it.

    Args:
        folder: The run's; CAVs lie in it.
        cache: Where activations are kept; settings with the same trunk and images share them there.
    """

    def __init__(self, setting: Setting, folder: Path, cache: Path, *, progress: Progress = silent) -> None:
        self.setting, self.data, self.folder, self.cache, self.progress = setting, setting.data, folder, cache, progress

    @cached_property
    def activations(self) -> dict[str, Activations]:
        """The layer's output for all five sets, on disk."""
        return {
            name: collect_activations(
                self.setting.model,
                self.setting.layer,
                DataLoader(getattr(self.data, name), batch_size=64, num_workers=self.setting.workers),
                folder=self.cache,
                device=self.setting.tuning.device,
                progress=self.progress,
            )
            for name in SETS
        }

    @cached_property
    def cut(self) -> Split:
        """The model in three parts."""
        return cut_again(self.setting.model, self.activations["train"], train=self.setting.trained)

    @cached_property
    def cavs(self) -> dict[str, CAV]:
        """All CAVs of the run."""
        return load_cavs(self.folder / "cavs.safetensors")

    @property
    def cav(self) -> CAV:
        """The CAV that the corrections use, and along which all models are judged."""
        return self.cavs[self.setting.cav]

    @cached_property
    def masked_train(self) -> ExampleSet:
        """The training images with masks of the artifact: the true ones, or those that the CAV localises."""
        train, kept = self.data.train, self.folder / "stages" / "masks.npy"
        if self.data.has_masks:
            return train
        if not kept.exists():
            masks = self._localised(train, np.flatnonzero(train.has_artifact))
            with written_atomically(kept) as temporary:
                np.save(temporary, masks)
        return Masked(train, np.load(kept))

    def pairs(self, edit: nn.Module | None = None) -> Pairs:
        """Return the test images at the head's input."""
        clean, biased = self.activations["test_clean"], self.activations["test_biased"]
        return pair_features(
            self.cut,
            clean,
            biased,
            biased_class=self.data.biased_class,
            inserted=self.data.is_inserted,
            cav=self.cav,
            edit=edit,
        )

    def validator(self, edit: nn.Module | None = None) -> Validator:
        """Return what judges heads on the validation images."""
        clean, biased = (
            compute_features(self.cut, self.activations[name], edit=edit) for name in ("val_clean", "val_biased")
        )
        original, data = self._original_predictions, self.data
        return Validator(clean, biased, data.biased_class, original, data.is_inserted, least=MIN_GROUP)

    @cached_property
    def original_validation(self) -> Validation:
        """What the model as it came does on the validation images."""
        return self.validator()(Heads(self.cut, 1, self.setting.tuning.device))[0]

    @cached_property
    def _original_predictions(self) -> np.ndarray:
        features = compute_features(self.cut, self.activations["val_clean"])
        return predict_classes(Heads(self.cut, 1, self.setting.tuning.device).logits(features)[0].double().numpy())

    @cached_property
    def shown_rows(self) -> np.ndarray:
        """Biased test images to show: those that the artifact makes wrong come first.

        Inserted, it pulls them into the biased class; in the scene it may push either way, and wrong is all we know.
        """
        evidence = judge_head(self.cut, self.cut.head_parameters(), self.pairs())
        biased, labels = predict_classes(evidence.logits_biased), evidence.labels_of("biased")
        misled = biased != labels
        if evidence.is_paired:
            misled &= (predict_classes(evidence.logits_clean) == labels) & (biased == self.data.biased_class)
        return np.argsort(~misled, kind="stable")[:_SHOWN]

    def shown_heatmaps(self, model: nn.Module) -> np.ndarray:
        """Return a model's relevance for the biased class on the shown images."""
        return self.heatmaps(model, self.shown_rows)

    def heatmaps(self, model: nn.Module, rows: np.ndarray) -> np.ndarray:
        """Return a model's relevance for the biased class on some biased test images."""
        images = self.data.test_biased.batch(rows).image
        return compute_heatmaps(model, images, self.data.biased_class, pass_through=(Projection,)).numpy()

    def judge(self, state: State, edit: nn.Module | None, *, explained: nn.Module | None = None) -> Evidence:
        """Gather the evidence on a head.

        Args:
            explained: The whole model with this head, to add how much of its heatmaps lies on the artifact.
        """
        signs = count_position_signs(
            self.cut,
            state,
            self.activations["test_biased"],
            self.cav,
            biased_class=self.data.biased_class,
            edit=edit,
        )
        share = None
        if explained is not None and self.data.is_localized:
            share = artifact_relevance(self.heatmaps(explained, self._scored_rows), self._scored_masks)
        return judge_head(self.cut, state, self.pairs(edit), position_signs=signs, relevance=share)

    @property
    def _scored_rows(self) -> np.ndarray:
        """The first images, not the shown ones, which were picked for their effect."""
        return np.arange(min(_EXPLAINED, len(self.data.test_biased)))

    @cached_property
    def _scored_masks(self) -> np.ndarray:
        test = self.data.test_biased
        if self.data.has_masks:
            return test.batch(self._scored_rows).mask.numpy()
        return self._localised(test, self._scored_rows)

    def _localised(self, images: ExampleSet, rows: np.ndarray) -> np.ndarray:
        """Return masks of where the CAV finds the artifact, for lack of true ones."""
        parts = [
            masks_from_heatmaps(
                compute_cav_heatmaps(self.setting.model, self.setting.layer, self.cav, images.batch(some).image)
            )
            for some in np.array_split(rows, max(1, len(rows) // 64))
        ]
        return np.concatenate([np.asarray(part) for part in parts])
