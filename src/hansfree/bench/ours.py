"""Our way from images to the chosen strength, timed: the pass, the CAV, and the path with its validation."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import TypeVar

from torch import nn
from torch.utils.data import DataLoader

from hansfree.activations import Activations, collect_activations, compute_features, cut_again
from hansfree.cavs import SignalCAV
from hansfree.corrections import Correction, RRClArC, Vanilla
from hansfree.datasets import Example, InMemory
from hansfree.metrics import predict_classes
from hansfree.selection import BalancedRule, Validation, Validator
from hansfree.splitting import Split
from hansfree.training import FineTuning, Heads

T = TypeVar("T")

_BIASED_CLASS = 0


@dataclass(frozen=True, eq=False)
class Images:
    """The three sets of a correction: all of them go through the model, on our side and in the plain forward pass."""

    train: InMemory
    clean: InMemory  # validation
    biased: InMemory  # validation: the same images with the artifact

    def loaders(self, batch: int) -> list[DataLoader[Example]]:
        """Return the loaders that every side uses."""
        return [DataLoader(part, batch_size=batch) for part in (self.train, self.clean, self.biased)]


@dataclass(frozen=True, eq=False)
class Walk:
    """One run of our side: how long it took, and what others need of it."""

    seconds: float
    activations: Activations
    cut: Split
    correction: RRClArC


def walk(model: nn.Module, layer: str, images: Images, tuning: FineTuning, *, epochs_timed: int | None = None) -> Walk:
    """Collect activations, fit the CAV, train all strengths with validation after every epoch, choose one.

    Args:
        epochs_timed: Train a single strength for so many epochs, and multiply up to all of them (for heads of
            which the whole path would take hours). None runs all.
    """
    start = perf_counter()
    train, clean, biased = (collect_activations(model, layer, part) for part in images.loaders(tuning.batch_size))
    correction = RRClArC(SignalCAV().fit(train.pooled, images.train.has_artifact), tuning=tuning)
    cut = cut_again(model, train)
    validator = _validator(cut, clean, biased)
    original = validator(Heads(cut, 1, tuning.device))[0]
    rule = BalancedRule()
    with _divergence_expected():
        if epochs_timed is None:
            heads = correction.train(cut, train, correction.grid, watch=validator)
            rule.choose([head.history[-1] for head in heads], original)
            return Walk(perf_counter() - start, train, cut, correction)
        shorter = RRClArC(correction.cav, tuning=replace(tuning, epochs=epochs_timed))
        watch = _Laps(validator)
        heads = shorter.train(cut, train, [1.0], watch=watch)
        prepared = perf_counter()
        rule.choose([head.history[-1] for head in heads], original)
    epoch = median(watch.laps)
    once_per_head = max(0.0, perf_counter() - prepared - epochs_timed * epoch)
    seconds = prepared - start + len(correction.grid) * (once_per_head + tuning.epochs * epoch)
    return Walk(seconds, train, cut, correction)


def time_steps(finished: Walk, *, epochs: int) -> tuple[float, float]:
    """Return the seconds of one step of RR-ClArC, and of one of Vanilla, on the same cache with one head each."""
    tuning = replace(finished.correction.tuning, epochs=epochs)
    penalised = RRClArC(finished.correction.cav, tuning=tuning)
    return _seconds_per_step(penalised, finished), _seconds_per_step(Vanilla(tuning=tuning), finished)


def _seconds_per_step(correction: Correction, finished: Walk) -> float:
    ends: list[float] = []

    def clock(steps: Iterable[T], *, total: int, label: str) -> Iterator[T]:
        for step in steps:
            ends.append(perf_counter())
            yield step

    with _divergence_expected():
        for _ in correction.train(finished.cut, finished.activations, [1.0], progress=clock):
            pass
    return median(end - start for start, end in pairwise(ends))


def _validator(cut: Split, clean: Activations, biased: Activations) -> Validator:
    without, with_artifact = compute_features(cut, clean), compute_features(cut, biased)
    cut.eval_mode()
    logits = Heads(cut, 1, "cpu").logits(without)[0].double().numpy()
    return Validator(without, with_artifact, _BIASED_CLASS, predict_classes(logits))


class _Laps:
    """A watch that takes the time from the end of one epoch's validation to the end of the next."""

    def __init__(self, validator: Validator) -> None:
        self.validator = validator
        self.ends: list[float] = []

    def __call__(self, heads: Heads) -> Sequence[Validation]:
        seen = self.validator(heads)
        self.ends.append(perf_counter())
        return seen

    @property
    def laps(self) -> list[float]:
        return [end - start for start, end in pairwise(self.ends)]


@contextmanager
def _divergence_expected() -> Iterator[None]:
    """Keep quiet about strengths that diverge: with random weights most of them do, and only their time counts."""
    logger = logging.getLogger("hansfree.training")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
