"""The draws of a tournament: who carries the artifact in training, and the models that learned from that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from torch import nn

from hansfree.activations import Activations, Features, compute_features, cut_again
from hansfree.datasets import Stamped
from hansfree.errors import DataError
from hansfree.experiments.plans import Plan
from hansfree.experiments.subjects import Subject
from hansfree.selection import first_classes
from hansfree.splitting import Split, Train
from hansfree.studies import BiasedData
from hansfree.tournament.sources import Natural, Poisoned, Source, Twins, Whole
from hansfree.training import FineTuning, tuning_for

DrawKind = Literal["poisoned", "natural", "whole"]


@dataclass(frozen=True, eq=False)
class Draw:
    """A biased model with what it learned from, and the model that never saw the artifact."""

    number: int
    kind: DrawKind
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
        return first_classes(self.cut, self.val_features[0], self.tuning.device)

    @cached_property
    def cav_rows(self) -> np.ndarray:
        """Training images that a signal-CAV is fitted to: those of the biased class."""
        return np.flatnonzero(self.train.labels == self.biased_class)


def kind_of_draws(plan: Plan, data: BiasedData) -> DrawKind:
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
    kinds: dict[DrawKind, type[Source]] = {"whole": Whole, "poisoned": Poisoned, "natural": Natural}
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
            val=material.val,
            test=material.test,
            corrected=plan.corrected,
            cut=cut_again(material.model, material.train, train=plan.corrected),
            tuning=tuning_for(
                subject.study, plan.model, epochs=plan.correction_epochs, seed=plan.seed + number, device=plan.device
            ),
            data=source.data,
        )
