"""Resamples of a dataset: biased models with their images, inserted, natural or retrained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, cast

import numpy as np
from torch import nn
from torch.utils.data import DataLoader

from hansfree.activations import (
    Activations,
    Features,
    collect,
    collect_activations,
    compute_features,
    cut_at,
    join,
    plan_pass,
)
from hansfree.cavs import SignalCAV
from hansfree.corrections import Vanilla
from hansfree.corrections.selection import original_predictions
from hansfree.corrections.training import FineTuning
from hansfree.data.biased import BiasedData
from hansfree.data.examples import ImageDataset
from hansfree.data.insertion import Pasted, WithArtifact
from hansfree.errors import DataError
from hansfree.evaluation.localisation import kept_masks, localise_artifact
from hansfree.models import architecture_named
from hansfree.models.surgery import Cut, Train
from hansfree.pipeline.auto_pairs import make_auto_pairs
from hansfree.pipeline.workspace import keep_in_memory
from hansfree_paper.subjects import BaseModels, Plan, Subject, tuning_for


def paste_artifact(subject: Subject, parts: Sequence[ImageDataset]) -> BiasedData:
    """Return the data with held-out pairs of a natural artifact: images without it, and with one pasted from another.

    Artifacts pasted onto validation images come from validation images, and likewise for the other splits. The masks
    are cached.

    Args:
        parts: training, validation and test images with artifact labels.
    """
    data = subject.study.data(subject.plan.model)
    layer = architecture_named(subject.plan.model).layer
    model = subject.models.untrained(data.train)  # all resamples share its trunk
    train = collect_activations(
        model, layer, data.train, folder=subject.work / "activations", name="train", progress=subject.progress
    )
    inside = np.flatnonzero(train.labels == data.biased_class)
    cav = SignalCAV().fit(train.pooled[inside], np.asarray(train.has_artifact)[inside])

    def pairs(images: ImageDataset, part: str) -> tuple[ImageDataset, ImageDataset]:
        def find() -> np.ndarray:
            marked, label = np.flatnonzero(images.has_artifact), f"where the artifact is ({part})"
            return localise_artifact(model, layer, cav, images, marked, progress=subject.progress, label=label)

        masks = kept_masks(subject.run.path / "stages" / f"masks-{part}.npz", find)
        return make_auto_pairs(model, layer, cav, images, masks=masks, seed=subject.study.seed)

    train_pairs, val, test = (pairs(images, part) for images, part in zip(parts, ("train", "val", "test")))
    return replace(
        data,
        val_clean=val[0],
        val_biased=val[1],
        test_clean=test[0],
        test_biased=test[1],
        train_biased=train_pairs[1],
        is_inserted=True,
    )


_TwoSets = tuple[ImageDataset, ImageDataset]

SEEN_SHARE = 0.8  # of the training images, per resample with a natural artifact


@dataclass(frozen=True, eq=False)
class Pair:
    """The same images without and with the artifact."""

    clean: Activations
    biased: Activations


@dataclass(frozen=True, eq=False)
class ResampleData:
    """The models of one resample, and the images at their layer."""

    train: Activations
    pairs: Pair
    val: Pair
    test: Pair
    model: nn.Module
    reference: nn.Module
    clean: Activations


class Source(ABC):
    """Make the resamples of a subject."""

    def __init__(self, subject: Subject, data: BiasedData) -> None:
        self.subject, self.data = subject, data
        self.layer = architecture_named(subject.plan.model).layer

    @abstractmethod
    def resample(self, number: int) -> ResampleData:
        """Return one resample."""

    def collect(self, model: nn.Module, images: ImageDataset, name: str) -> Activations:
        """Return the layer's output, from the cache where possible."""
        subject = self.subject
        plan = plan_pass(
            model,
            self.layer,
            DataLoader(images, batch_size=64, num_workers=subject.plan.workers),
            folder=subject.work / "activations",
            device=subject.plan.device,
            name=name,
        )
        return collect(plan, progress=subject.progress)

    def pair_of(self, model: nn.Module, images: _TwoSets, name: str) -> Pair:
        """Return the layer's output for the same images without and with the artifact."""
        clean, biased = images
        return Pair(self.collect(model, clean, f"{name} clean"), self.collect(model, biased, f"{name} biased"))

    def held_out(self, model: nn.Module) -> tuple[Pair, Pair]:
        """Return the layer's output for validation and test images."""
        data = self.data
        val, test = (data.val_clean, data.val_biased), (data.test_clean, data.test_biased)
        return self.pair_of(model, val, "val"), self.pair_of(model, test, "test")

    def models(self, number: int) -> BaseModels:
        """Return the base models of a resample."""
        plan = self.subject.plan
        return replace(self.subject.models, plan=replace(plan, seed=plan.seed + number))


class SharedTrunk(Source):
    """All resamples share a trunk, its cache and the held-out images; only heads are trained."""

    def __init__(self, subject: Subject, data: BiasedData) -> None:
        super().__init__(subject, data)
        self.trunk = self.models(0).untrained(data.train)
        self.val, self.test = self.held_out(self.trunk)

    def make(self, train: Activations, pairs: Pair, clean: Activations, number: int) -> ResampleData:
        """Return a resample whose biased head learned from ``train``, and its reference from ``clean``."""
        model, reference = self._with_head(train, number), self._with_head(clean, number)
        return ResampleData(train, pairs, self.val, self.test, model, reference, clean)

    def rng(self, number: int) -> np.random.Generator:
        """Return the random generator of a resample."""
        return np.random.default_rng((self.subject.study.seed, number))

    def _with_head(self, images: Activations, number: int) -> nn.Module:
        models = self.models(number)
        return Vanilla(tuning=models.head_recipe()).correct(models.untrained(self.data.train), images)


class InsertedSource(SharedTrunk):
    """Insert the artifact into other images of the biased class in every resample."""

    def __init__(self, subject: Subject, data: BiasedData) -> None:
        super().__init__(subject, data)
        poisoned = cast(WithArtifact, data.train)
        full = WithArtifact(
            poisoned.source, poisoned.artifact, share=1, seed=poisoned.seed, transform=poisoned.transform
        )
        self.clean = self.collect(self.trunk, cast(ImageDataset, data.clean_train), "train clean")
        self.biased = self.collect(self.trunk, full, "train biased")

    def resample(self, number: int) -> ResampleData:
        """Insert the artifact into as many images of the biased class as the dataset has; the others can form pairs."""
        count = int(self.data.train.has_artifact.sum())
        inside = np.flatnonzero(self.clean.labels == self.data.biased_class)
        has_artifact = np.zeros(len(self.clean), dtype=bool)
        has_artifact[self.rng(number).choice(inside, count, replace=False)] = True
        rows = np.arange(len(self.clean))
        train = join(self.clean, self.biased).select(rows + len(rows) * has_artifact)
        free = np.flatnonzero(~has_artifact)
        return self.make(train, Pair(self.clean.select(free), self.biased.select(free)), self.clean, number)


class NaturalSource(SharedTrunk):
    """Use a random part of the training images, whose artifacts are natural."""

    def __init__(self, subject: Subject, data: BiasedData) -> None:
        super().__init__(subject, data)
        self.train = self.collect(self.trunk, data.train, "train")
        self.pairs = self.pair_of(self.trunk, cast(_TwoSets, data.pairs), "pairs")
        made = cast(ImageDataset, data.train_biased)
        self.taken_from = made.donor_ids if isinstance(made, Pasted) else made.ids

    def resample(self, number: int) -> ResampleData:
        """Take a part of the training images; the reference learns from those without the artifact.

        Pairs use artifacts of this part only: methods that use pairs would otherwise see more images than the others.
        """
        count = round(SEEN_SHARE * len(self.train))
        seen = np.sort(self.rng(number).choice(len(self.train), count, replace=False))
        train = self.train.select(seen)
        rows = np.flatnonzero(np.isin(self.pairs.clean.ids, train.ids) & np.isin(self.taken_from, train.ids))
        without = train.select(np.flatnonzero(~np.asarray(train.has_artifact)))
        pairs = Pair(self.pairs.clean.select(rows), self.pairs.biased.select(rows))
        return self.make(train, pairs, without, number)


class RetrainedSource(Source):
    """Train a biased model and a reference for every resample; models and activations are cached."""

    def __init__(self, subject: Subject, data: BiasedData) -> None:
        super().__init__(subject, keep_in_memory(data, progress=subject.progress))  # many epochs on the same images

    def resample(self, number: int) -> ResampleData:
        """Train or load both models of a resample."""
        data, models = self.data, self.models(number)
        learned = cast(ImageDataset, data.clean_train)
        model, _ = models.trained(data.learned, f"biased model {number}")
        reference, _ = models.trained(learned, f"clean reference {number}")
        train = self.collect(model, data.train, "train")
        pairs = self.pair_of(model, cast(_TwoSets, data.pairs), "pairs")
        clean = self.collect(reference, learned, "train clean")  # at the layer of the reference itself
        return ResampleData(train, pairs, *self.held_out(model), model, reference, clean)


ResampleKind = Literal["inserted", "natural", "retrained"]


@dataclass(frozen=True, eq=False)
class Resample:
    """A biased model with its images, and a reference model trained on clean data."""

    number: int
    kind: ResampleKind
    biased_class: int
    model: nn.Module
    reference: nn.Module
    clean: Activations  # training images of the reference, at its own layer
    train: Activations  # some with the artifact
    pairs: Pair  # training images without the artifact, and with it inserted
    val: Pair
    test: Pair
    corrected: Train  # what the corrections may change
    cut: Cut  # of the biased model
    tuning: FineTuning
    data: BiasedData

    @cached_property
    def val_features(self) -> tuple[Features, Features]:
        """The validation images at the head's input, for entries without an edit at inference."""
        return compute_features(self.cut, self.val.clean), compute_features(self.cut, self.val.biased)

    @cached_property
    def original_predictions(self) -> np.ndarray:
        """Predictions of the biased model for clean validation images."""
        return original_predictions(self.cut, self.val_features[0], self.tuning.device)

    @cached_property
    def cav_rows(self) -> np.ndarray:
        """Training images of the biased class, to which a signal-CAV is fitted."""
        return np.flatnonzero(self.train.labels == self.biased_class)


def resample_kind(plan: Plan, data: BiasedData) -> ResampleKind:
    """Return what differs between the resamples of a subject."""
    if plan.trained == "whole":
        return "retrained"
    return "inserted" if isinstance(data.train, WithArtifact) else "natural"


def make_resamples(subject: Subject, data: BiasedData, numbers: Sequence[int]) -> Iterator[Resample]:
    """Yield the resamples of a subject."""
    if not data.is_inserted or data.pairs is None or data.clean_train is None:
        raise DataError("The comparison needs counterfactual pairs of training and held-out images.")
    if data.train.is_relabelled.any():
        raise DataError("The comparison does not support datasets that relabel images with the artifact.")
    if not numbers:
        return
    plan = subject.plan
    kinds: dict[ResampleKind, type[Source]] = {
        "retrained": RetrainedSource,
        "inserted": InsertedSource,
        "natural": NaturalSource,
    }
    kind = resample_kind(plan, data)
    source = kinds[kind](subject, data)
    for number in numbers:
        made = source.resample(number)
        yield Resample(
            number=number,
            kind=kind,
            biased_class=data.biased_class,
            model=made.model,
            reference=made.reference,
            clean=made.clean,
            train=made.train,
            pairs=made.pairs,
            val=made.val,
            test=made.test,
            corrected=plan.corrected,
            cut=cut_at(made.model, made.train, train=plan.corrected),
            tuning=tuning_for(
                subject.study, plan.model, epochs=plan.correction_epochs, seed=plan.seed + number, device=plan.device
            ),
            data=source.data,
        )
