"""What the stages of an experiment share, made when first needed: the cache, the cut, CAVs and held-out features."""

from __future__ import annotations

from functools import cached_property, partial
from pathlib import Path

import numpy as np
from torch import nn
from torch.utils.data import DataLoader

from hansfree.activations import (
    Activations,
    CachePass,
    Features,
    collect,
    compute_features,
    cut_again,
    find_pairs,
    join,
    plan_pass,
)
from hansfree.cavs import CAV, load_cavs, save_cavs
from hansfree.corrections import Correction
from hansfree.datasets import ExampleSet, Masked
from hansfree.errors import DataError, RunError
from hansfree.evaluation import (
    HeldOutFeatures,
    State,
    count_position_signs,
    held_out_features,
    judge_head,
    probed_images,
)
from hansfree.experiments.pictures import Pictures
from hansfree.experiments.setting import Setting, tell_no_pairs
from hansfree.heatmaps import kept_masks
from hansfree.metrics import MIN_GROUP, Evidence, predict_classes
from hansfree.progress import Progress, silent
from hansfree.selection import Validation, Validator, first_classes
from hansfree.splitting import Split
from hansfree.studies import SETS
from hansfree.training import Heads

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
        """The layer's output for all five sets, on disk; a set without images has none."""
        return {name: collect(self.plan(name), progress=self.progress) for name in self.filled_sets}

    def train_for(self, method: Correction) -> Activations:
        """Return what a method learns from: the training images, and where it wants pairs those with the artifact."""
        return self.paired_train if method.uses_pairs else self.activations["train"]

    @cached_property
    def paired_train(self) -> Activations:
        """The training images, and those without the artifact once more with it put in."""
        if self.data.train_biased is None:
            raise DataError(tell_no_pairs())
        return join(self.activations["train"], collect(self.plan("train_biased"), progress=self.progress))

    def remark_on(self, method: Correction) -> str:
        """Return what a method has to say beside its results."""
        held_out = self.activations
        return method.remark(self.train_for(method), clean=held_out["test_clean"], biased=held_out.get("test_biased"))

    @property
    def filled_sets(self) -> list[str]:
        """The names of the sets that have images."""
        return [name for name in SETS if len(getattr(self.data, name))]

    def plan(self, name: str, images: ExampleSet | None = None) -> CachePass:
        """Return the pass of one set into the cache; it holds a copy of the model, so it is not kept.

        Args:
            images: None where the name is that of one of the data's own sets.
        """
        images = getattr(self.data, name) if images is None else images
        return plan_pass(
            self.setting.model,
            self.setting.layer,
            DataLoader(images, batch_size=64, num_workers=self.setting.workers),
            folder=self.cache,
            device=self.device,
            name=name.replace("_", " "),
        )

    @property
    def device(self) -> str:
        """Where everything is computed."""
        return self.setting.tuning.device

    @cached_property
    def cut(self) -> Split:
        """The model in three parts."""
        return cut_again(self.setting.model, self.activations["train"], train=self.setting.train)

    @cached_property
    def cavs(self) -> dict[str, CAV]:
        """All CAVs of the run."""
        try:
            return load_cavs(self.folder / "cavs.safetensors")
        except RunError as error:
            stage = self.folder / "stages" / "cavs.json"
            raise RunError(f"{error} Delete {stage}, and type the same command again: it makes both anew.") from error

    @property
    def cav(self) -> CAV:
        """The artifact's own CAV, along which all models are judged; corrections take `corrected_cav`."""
        return self.cav_named(self.setting.cav)

    def cav_named(self, name: str) -> CAV:
        """Return a CAV of the run; one that needs pairs is fitted when it is first asked for."""
        if name not in self.cavs:
            kept = self.folder / f"cav-{name}.safetensors"
            if not kept.exists():
                clean, biased = find_pairs(self.paired_train).T
                pooled = self.paired_train.pooled
                save_cavs(kept, {name: CAV.named(name)().fit_pairs(pooled[clean], pooled[biased])})
            self.cavs.update(load_cavs(kept))
        return self.cavs[name]

    @property
    def cav_images(self) -> np.ndarray:
        """Rows of the training images that CAVs are fitted to: those of the biased class itself.

        An image of another class that was relabelled would bend the direction towards that class.
        """
        train = self.data.train
        return np.flatnonzero((train.labels == self.data.biased_class) & ~train.is_relabelled)

    @cached_property
    def pictures(self) -> Pictures:
        """Where models and the CAV look."""
        return Pictures(self.setting, lambda: self.cav)

    @cached_property
    def masked_train(self) -> ExampleSet:
        """The training images with masks of the artifact: the true ones, or those that the CAV localises."""
        train = self.data.train
        if self.data.has_masks:
            return train
        marked = np.flatnonzero(train.has_artifact)
        find = partial(self.pictures.localise, train, marked, progress=self.progress)
        return Masked(train, kept_masks(self.folder / "stages" / "masks.npz", find))

    def held_out(self, edit: nn.Module | None = None) -> HeldOutFeatures:
        """Return the test images at the head's input."""
        return held_out_features(
            self.cut,
            self.activations["test_clean"],
            self.activations.get("test_biased"),
            biased_class=self.data.biased_class,
            inserted=self.data.is_inserted,
            cav=self.cav,
            edit=edit,
        )

    def validator(self, edit: nn.Module | None = None) -> Validator:
        """Return what judges heads on the validation images."""
        features = {
            name: compute_features(self.cut, self.activations[name], edit=edit)
            for name in ("val_clean", "val_biased")
            if name in self.activations
        }
        return Validator(
            features["val_clean"],
            features.get("val_biased"),
            self.data.biased_class,
            self._original_predictions,
            self.data.is_inserted,
            least=MIN_GROUP,
            probed=self._probed(edit) if self.setting.rule.needs_derivative else (),
        )

    def _probed(self, edit: nn.Module | None) -> tuple[Features, ...]:
        """Return validation images with tangents along the artifact's own shift, for the rule that looks at ``u``."""
        clean, biased = self.activations["val_clean"], self.activations.get("val_biased")
        shift = (self.cav.scale_ @ self.cav.directions_)[None]
        return tuple(
            compute_features(self.cut, images, directions=shift, edit=edit)
            for images in probed_images(clean, biased, inserted=self.data.is_inserted)
        )

    @cached_property
    def original_validation(self) -> Validation:
        """What the model as it came does on the validation images."""
        return self.validator()(Heads(self.cut, 1, self.device))[0]

    @cached_property
    def _original_predictions(self) -> np.ndarray:
        return first_classes(self.cut, compute_features(self.cut, self.activations["val_clean"]), self.device)

    @cached_property
    def shown_rows(self) -> np.ndarray:
        """Biased test images to show: those that the artifact makes wrong come first.

        Inserted, it pulls them into the biased class; in the scene it may push either way, and wrong is all we know.
        """
        evidence = judge_head(self.cut, self.cut.head_parameters(), self.held_out(), device=self.device)
        biased, labels = predict_classes(evidence.logits_biased), evidence.labels_of("biased")
        misled = biased != labels
        if evidence.is_paired:
            misled &= (predict_classes(evidence.logits_clean) == labels) & (biased == self.data.biased_class)
        return np.argsort(~misled, kind="stable")[:_SHOWN]

    def judge(self, state: State, edit: nn.Module | None, *, explained: nn.Module | None = None) -> Evidence:
        """Gather the evidence on a head.

        Args:
            explained: The whole model with this head, to add how much of its heatmaps lies on the artifact.
        """
        clean, biased = self.activations["test_clean"], self.activations.get("test_biased")
        signs = [
            count_position_signs(
                self.cut,
                state,
                images,
                self.cav,
                biased_class=self.data.biased_class,
                edit=edit,
                device=self.device,
            )
            for images in probed_images(clean, biased, inserted=self.data.is_inserted)
        ]
        share = None
        if explained is not None and self.data.is_localized and self.is_biased_known:
            share = self.pictures.relevance(explained)
        return judge_head(
            self.cut,
            state,
            self.held_out(edit),
            position_signs=np.concatenate(signs),
            relevance=share,
            device=self.device,
        )

    @property
    def is_biased_known(self) -> bool:
        """Whether there are test images enough with the artifact for a score over all of them."""
        return self.data.is_inserted or len(self.data.test_biased) >= MIN_GROUP
