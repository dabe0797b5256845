"""What the draws of a tournament are made from.

Where only heads are trained, every image goes through the trunk once without and once with the artifact; a draw is a
choice of rows, and heads that were trained on them. Where whole models are trained, a draw has two of its own and its
own cache: the images are the same in all draws, the first weights and the order of the images are not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from torch import nn
from torch.utils.data import DataLoader

from hansfree.activations import Activations, collect, join, pick, plan_pass
from hansfree.corrections import Vanilla
from hansfree.datasets import ExampleSet, Pasted, Stamped
from hansfree.experiments.base_models import BaseModels
from hansfree.experiments.subjects import Subject, keep_in_memory
from hansfree.models import architecture_named
from hansfree.studies import BiasedData

_TwoSets = tuple[ExampleSet, ExampleSet]
_SEEN = 0.8  # part of the training images that a draw sees where the artifact is in them by nature


@dataclass(frozen=True, eq=False)
class Twins:
    """The same images without and with the artifact."""

    clean: Activations
    biased: Activations


@dataclass(frozen=True, eq=False)
class Material:
    """The models of one draw, and the images as they see them."""

    train: Activations
    pairs: Twins
    val: Twins
    test: Twins
    model: nn.Module
    reference: nn.Module
    clean: Activations


class Source(ABC):
    """Makes the draws of a subject."""

    def __init__(self, subject: Subject, data: BiasedData) -> None:
        self.subject, self.data = subject, data
        self.layer = architecture_named(subject.plan.model).layer

    @abstractmethod
    def drawn(self, number: int) -> Material:
        """Return one draw."""

    def collect(self, model: nn.Module, images: ExampleSet, name: str) -> Activations:
        """Return the layer's output; the cache knows images that went through this trunk before."""
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

    def twins(self, model: nn.Module, images: _TwoSets, name: str) -> Twins:
        """Return the layer's output for the same images without and with the artifact."""
        clean, biased = images
        return Twins(self.collect(model, clean, f"{name} clean"), self.collect(model, biased, f"{name} biased"))

    def held_out(self, model: nn.Module) -> tuple[Twins, Twins]:
        """Return the layer's output for validation and test images."""
        data = self.data
        val, test = (data.val_clean, data.val_biased), (data.test_clean, data.test_biased)
        return self.twins(model, val, "val"), self.twins(model, test, "test")

    def models(self, number: int) -> BaseModels:
        """Return what makes the models of a draw."""
        subject = self.subject
        plan = replace(subject.plan, seed=subject.plan.seed + number)
        return BaseModels(study=subject.study, plan=plan, work=subject.work, progress=subject.progress)


class _OneTrunk(Source):
    """All draws share a trunk, its cache and the held-out images; only heads are trained."""

    def __init__(self, subject: Subject, data: BiasedData) -> None:
        super().__init__(subject, data)
        self.trunk = self.models(0).untrained(data.train)
        self.val, self.test = self.held_out(self.trunk)

    def material(self, train: Activations, pairs: Twins, clean: Activations, number: int) -> Material:
        """Return a draw whose biased head learned from ``train``, and its reference from ``clean``."""
        model, reference = self._with_head(train, number), self._with_head(clean, number)
        return Material(train, pairs, self.val, self.test, model, reference, clean)

    def rng(self, number: int) -> np.random.Generator:
        """Return the randomness of a draw."""
        return np.random.default_rng((self.subject.study.seed, number))

    def _with_head(self, images: Activations, number: int) -> nn.Module:
        models = self.models(number)
        return Vanilla(tuning=models.head_recipe()).correct(models.untrained(self.data.train), images)


class Poisoned(_OneTrunk):
    """The artifact is put into other images of the biased class in every draw."""

    def __init__(self, subject: Subject, data: BiasedData) -> None:
        super().__init__(subject, data)
        poisoned = cast(Stamped, data.train)
        full = Stamped(poisoned.source, poisoned.artifact, share=1, seed=poisoned.seed, transform=poisoned.transform)
        self.clean = self.collect(self.trunk, cast(ExampleSet, data.clean_train), "train clean")
        self.biased = self.collect(self.trunk, full, "train biased")

    def drawn(self, number: int) -> Material:
        """Draw as many images of the biased class as the study has with the artifact; the rest can be made pairs."""
        count = int(self.data.train.has_artifact.sum())
        inside = np.flatnonzero(self.clean.labels == self.data.biased_class)
        has_artifact = np.zeros(len(self.clean), dtype=bool)
        has_artifact[self.rng(number).choice(inside, count, replace=False)] = True
        rows = np.arange(len(self.clean))
        train = pick(join(self.clean, self.biased), rows + len(rows) * has_artifact)
        free = np.flatnonzero(~has_artifact)
        return self.material(train, Twins(pick(self.clean, free), pick(self.biased, free)), self.clean, number)


class Natural(_OneTrunk):
    """The artifact is in the images by nature: a draw sees a part of them."""

    def __init__(self, subject: Subject, data: BiasedData) -> None:
        super().__init__(subject, data)
        self.train = self.collect(self.trunk, data.train, "train")
        self.pairs = self.twins(self.trunk, cast(_TwoSets, data.pairs), "pairs")
        made = cast(ExampleSet, data.train_biased)
        self.taken_from = made.donor_ids if isinstance(made, Pasted) else made.ids

    def drawn(self, number: int) -> Material:
        """Draw a part of the training images; the reference learns from those of them without the artifact.

        Pairs hold no artifact of an image outside the draw: methods that take them would see more than the others.
        """
        count = round(_SEEN * len(self.train))
        seen = np.sort(self.rng(number).choice(len(self.train), count, replace=False))
        train = pick(self.train, seen)
        rows = np.flatnonzero(np.isin(self.pairs.clean.ids, train.ids) & np.isin(self.taken_from, train.ids))
        without = pick(train, np.flatnonzero(~np.asarray(train.has_artifact)))
        pairs = Twins(pick(self.pairs.clean, rows), pick(self.pairs.biased, rows))
        return self.material(train, pairs, without, number)


class Whole(Source):
    """Every draw trains a biased model and a reference of its own; they are kept, and so are their caches."""

    def __init__(self, subject: Subject, data: BiasedData) -> None:
        super().__init__(subject, keep_in_memory(data, progress=subject.progress))  # many epochs of the same images

    def drawn(self, number: int) -> Material:
        """Train, or find, both models of a draw."""
        data, models = self.data, self.models(number)
        learned = cast(ExampleSet, data.clean_train)
        model, _ = models.trained(data.learned, f"biased model {number}")
        reference, _ = models.trained(learned, f"clean reference {number}")
        train = self.collect(model, data.train, "train")
        pairs = self.twins(model, cast(_TwoSets, data.pairs), "pairs")
        clean = self.collect(reference, learned, "train clean")  # what the reference saw, at its own layer
        return Material(train, pairs, *self.held_out(model), model, reference, clean)
