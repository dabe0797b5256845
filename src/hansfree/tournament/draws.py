"""The draws of a tournament: who carries the artifact in training, and the models that learned from that.

Every image goes through the trunk once without and once with the artifact; a draw is a choice of rows, and a head that
was trained on them. Where the whole model was trained there is one model, and draws differ by the correction's seed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, cast

import numpy as np
from torch import nn
from torch.utils.data import DataLoader

from hansfree.activations import Activations, Features, collect, compute_features, cut_again, join, pick, plan_pass
from hansfree.corrections import Vanilla
from hansfree.datasets import ExampleSet, Stamped
from hansfree.errors import DataError
from hansfree.experiments.base_models import BaseModels
from hansfree.experiments.plans import Plan
from hansfree.experiments.subjects import Subject
from hansfree.metrics import predict_classes
from hansfree.models import architecture_named
from hansfree.splitting import Split, Train
from hansfree.studies import BiasedData
from hansfree.training import FineTuning, Heads, tuning_for

Kind = Literal["poisoned", "natural", "whole"]

_SEEN = 0.8  # part of the training images that a draw sees where the artifact is in them by nature


@dataclass(frozen=True, eq=False)
class Twins:
    """The same images without and with the artifact."""

    clean: Activations
    biased: Activations


@dataclass(frozen=True, eq=False)
class Draw:
    """A biased model with what it learned from, and the model that never saw the artifact."""

    number: int
    kind: Kind
    biased_class: int
    model: nn.Module
    reference: nn.Module
    clean: Activations  # what the reference learned from, at the reference's own layer
    train: Activations  # some with the artifact
    pairs: Twins  # training images without the artifact, and with it put in
    val: Twins
    test: Twins
    corrected: Train  # what the corrections may change
    cut: Split  # the biased model in three parts
    tuning: FineTuning
    data: BiasedData

    @cached_property
    def val_features(self) -> tuple[Features, Features]:
        """The validation images at the head's input, as every entrant that edits nothing sees them."""
        return compute_features(self.cut, self.val.clean), compute_features(self.cut, self.val.biased)

    @cached_property
    def first_classes(self) -> np.ndarray:
        """What the biased model answers for the validation images without the artifact."""
        logits = Heads(self.cut, 1, self.tuning.device).logits(self.val_features[0])[0]
        return predict_classes(logits.double().numpy())

    @cached_property
    def cav_rows(self) -> np.ndarray:
        """Training images that a signal-CAV is fitted to: those of the biased class."""
        return np.flatnonzero(self.train.labels == self.biased_class)


def kind_of_draws(plan: Plan, data: BiasedData) -> Kind:
    """Return in what the draws of a subject differ."""
    if plan.trained == "whole":
        return "whole"
    return "poisoned" if isinstance(data.train, Stamped) else "natural"


def make_draws(subject: Subject, data: BiasedData, numbers: Sequence[int]) -> Iterator[Draw]:
    """Yield the draws of a subject one after the other."""
    if not data.is_inserted or data.pairs is None or data.clean_train is None:
        raise DataError("A tournament needs the same images without and with the artifact, in training too.")
    if data.train.is_relabelled.any():
        raise DataError("A tournament draws images anew, which studies that relabel some of them do not allow.")
    if not numbers:
        return
    plan = subject.plan
    kinds: dict[Kind, type[_Source]] = {"whole": _Given, "poisoned": _Poisoned, "natural": _Natural}
    kind = kind_of_draws(plan, data)
    source = kinds[kind](subject, data)
    for number in numbers:
        material = source.drawn(number)
        yield Draw(
            number=number,
            kind=kind,
            biased_class=data.biased_class,
            model=material.model,
            reference=material.reference,
            clean=material.clean,
            train=material.train,
            pairs=material.pairs,
            val=source.val,
            test=source.test,
            corrected=plan.corrected,
            cut=cut_again(material.model, material.train, train=plan.corrected),
            tuning=tuning_for(
                subject.study, plan.model, epochs=plan.correction_epochs, seed=plan.seed + number, device=plan.device
            ),
            data=data,
        )


@dataclass(frozen=True, eq=False)
class _Material:
    """What changes from draw to draw."""

    train: Activations
    pairs: Twins
    model: nn.Module
    reference: nn.Module
    clean: Activations


class _Source(ABC):
    """What all draws of a subject share: a trunk, its cache and the held-out images."""

    def __init__(self, subject: Subject, data: BiasedData) -> None:
        self.subject, self.data = subject, data
        self.layer = architecture_named(subject.plan.model).layer
        self.trunk = self.build()
        self.val = Twins(self.collect(data.val_clean, "val clean"), self.collect(data.val_biased, "val biased"))
        self.test = Twins(self.collect(data.test_clean, "test clean"), self.collect(data.test_biased, "test biased"))

    @abstractmethod
    def drawn(self, number: int) -> _Material:
        """Return one draw."""

    def build(self) -> nn.Module:
        """Return a model with the trunk of all draws."""
        return self.models(0).untrained(self.data.train)

    def collect(self, images: ExampleSet, name: str, *, model: nn.Module | None = None) -> Activations:
        """Return the layer's output; the cache knows images that went through this trunk before.

        Args:
            model: None for the one whose trunk all draws share.
        """
        subject = self.subject
        plan = plan_pass(
            model or self.trunk,
            self.layer,
            DataLoader(images, batch_size=64, num_workers=subject.plan.workers),
            folder=subject.work / "activations",
            device=subject.plan.device,
            name=name,
        )
        return collect(plan, progress=subject.progress)

    def models(self, number: int) -> BaseModels:
        """Return what makes the models of a draw."""
        subject = self.subject
        plan = replace(subject.plan, seed=subject.plan.seed + number)
        return BaseModels(study=subject.study, plan=plan, work=subject.work, progress=subject.progress)

    def with_head(self, images: Activations, number: int) -> nn.Module:
        """Return a model whose head was trained on some images."""
        models = self.models(number)
        return Vanilla(tuning=models.head_recipe()).correct(models.untrained(self.data.train), images)

    def rng(self, number: int) -> np.random.Generator:
        """Return the randomness of a draw."""
        return np.random.default_rng((self.subject.study.seed, number))


class _Poisoned(_Source):
    """The artifact is put into other images of the biased class in every draw."""

    def __init__(self, subject: Subject, data: BiasedData) -> None:
        super().__init__(subject, data)
        poisoned = cast(Stamped, data.train)
        full = Stamped(poisoned.source, poisoned.artifact, share=1, seed=poisoned.seed, transform=poisoned.transform)
        self.clean = self.collect(cast(ExampleSet, data.clean_train), "train clean")
        self.biased = self.collect(full, "train biased")

    def drawn(self, number: int) -> _Material:
        """Draw as many images of the biased class as the study has with the artifact; the rest can be made pairs."""
        count = int(self.data.train.has_artifact.sum())
        inside = np.flatnonzero(self.clean.labels == self.data.biased_class)
        has_artifact = np.zeros(len(self.clean), dtype=bool)
        has_artifact[self.rng(number).choice(inside, count, replace=False)] = True
        rows = np.arange(len(self.clean))
        train = pick(join(self.clean, self.biased), rows + len(rows) * has_artifact)
        free = np.flatnonzero(~has_artifact)
        return _Material(
            train,
            Twins(pick(self.clean, free), pick(self.biased, free)),
            self.with_head(train, number),
            self.with_head(self.clean, number),
            self.clean,
        )


class _Natural(_Source):
    """The artifact is in the images by nature: a draw sees a part of them."""

    def __init__(self, subject: Subject, data: BiasedData) -> None:
        super().__init__(subject, data)
        self.train = self.collect(data.train, "train")
        self.clean, self.biased = (
            self.collect(images, name) for images, name in zip(data.pairs or (), ("pairs clean", "pairs biased"))
        )

    def drawn(self, number: int) -> _Material:
        """Draw a part of the training images; the reference learns from those of them without the artifact."""
        count = round(_SEEN * len(self.train))
        seen = np.sort(self.rng(number).choice(len(self.train), count, replace=False))
        train = pick(self.train, seen)
        rows = np.flatnonzero(np.isin(self.clean.ids, train.ids))
        without = pick(train, np.flatnonzero(~np.asarray(train.has_artifact)))
        return _Material(
            train,
            Twins(pick(self.clean, rows), pick(self.biased, rows)),
            self.with_head(train, number),
            self.with_head(without, number),
            without,
        )


class _Given(_Source):
    """The whole model was trained: there is one, and draws differ by the seed of the correction."""

    def build(self) -> nn.Module:
        """Return the biased model."""
        return self.models(0).trained(self.data.learned, "biased model")[0]

    def drawn(self, number: int) -> _Material:
        """Return the same for every draw."""
        return self._only

    @cached_property
    def _only(self) -> _Material:
        clean, biased = (
            self.collect(images, name) for images, name in zip(self.data.pairs or (), ("pairs clean", "pairs biased"))
        )
        learned = cast(ExampleSet, self.data.clean_train)
        reference, _ = self.models(0).trained(learned, "clean reference")
        seen = self.collect(learned, "train clean", model=reference)
        return _Material(self.collect(self.data.train, "train"), Twins(clean, biased), self.trunk, reference, seen)
