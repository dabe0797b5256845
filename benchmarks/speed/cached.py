"""Our way from images to the selected strength, timed: the pass, the CAV, and the path with its validation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import TypeVar

import numpy as np
from torch import nn

from benchmarks.speed.setup import Images, clock
from hansfree._internal.progress import without_warnings
from hansfree.activations import (
    Activations,
    Features,
    collect,
    collect_activations,
    compute_features,
    cut_at,
    plan_pass,
)
from hansfree.cavs import SignalCAV
from hansfree.corrections import LatentCorrection, RRClArC
from hansfree.corrections.selection import BalancedRule, Validation, Validator, original_predictions
from hansfree.corrections.training import FineTuning, Heads, train_heads
from hansfree.models.surgery import Cut

T = TypeVar("T")

_BIASED_CLASS = 0


@dataclass(frozen=True, eq=False)
class Ready:
    """What every correction on the cache starts from."""

    train: Activations
    cut: Cut
    cav: SignalCAV


@dataclass(frozen=True, eq=False)
class Walk:
    """One run of our side: how long its parts took, and what others need of it."""

    ready: Ready
    passing: float  # seconds of the pass over all images
    preparing: float  # from the end of the pass to the first step of training
    training: float  # all strengths and epochs, with validation after each, and the choice
    training_one: float | None  # the same of one strength; None where the path was run in full

    @property
    def seconds(self) -> float:
        """The whole of it."""
        return self.passing + self.preparing + self.training

    @property
    def one(self) -> float:
        """The whole of it for one strength."""
        if self.training_one is None:
            raise ValueError("A path that was run in full does not tell how long one strength takes.")
        return self.passing + self.preparing + self.training_one


def make_ready(model: nn.Module, layer: str, images: Images, batch: int) -> Ready:
    """Collect the training images' activations and fit the CAV, for benchmarks that start from there."""
    train = collect_activations(model, layer, images.loaders(batch)[0])
    return Ready(train, cut_at(model, train), SignalCAV().fit(train.pooled, images.train.has_artifact))


def walk(
    model: nn.Module,
    layer: str,
    images: Images,
    tuning: FineTuning,
    *,
    strengths: Sequence[float] = RRClArC.info.strengths,
    epochs_timed: int | None = None,
    times: int = 1,
) -> Walk:
    """Collect activations, fit the CAV, train all strengths with validation after every epoch, choose one.

    Args:
        epochs_timed: Train a single strength for so many epochs, and multiply up to all of them (for heads of
            which the whole path would take hours). None runs all.
        times: The head sees every image so many times, a little different each time; the pass is multiplied up.
    """
    start = clock()
    plans = [plan_pass(model, layer, part) for part in images.loaders(tuning.batch_size)]
    planned = clock()  # the model is cut once, however many images pass
    train, clean, biased = map(collect, plans)
    passed = clock()
    cav = SignalCAV().fit(train.pooled, images.train.has_artifact)
    cut = cut_at(model, train)
    validator = _validator(cut, clean, biased, times)
    original = validator(Heads(cut, 1, tuning.device))[0]
    watch = _Laps(validator)
    run, tried = (tuning, strengths) if epochs_timed is None else (replace(tuning, epochs=epochs_timed), [1.0])
    correction = RRClArC(cav, tuning=run)
    features = _repeated(compute_features(cut, train, correction.features(train)), times)
    prepared = clock()
    begun: list[float] = []  # what training does once for all strengths is done by then

    def begin(steps: Iterable[T], *, total: int, label: str) -> Iterator[T]:
        begun.append(clock())
        return iter(steps)

    with without_warnings():  # with random weights most strengths diverge, and only their time counts
        heads = list(train_heads(cut, features, correction, tried, watch=watch, progress=begin, label="heads"))
        trained = clock()
        choice = BalancedRule().choose([head.history[-1] for head in heads], original)
        _ = heads[choice.index or 0].state  # the chosen head's weights are put together
    done = clock()
    training, training_one = done - prepared, None
    if epochs_timed is not None:
        epoch, once = median(watch.laps), begun[0] - prepared + watch.once + done - trained
        once_per_head = max(0.0, training - once - epochs_timed * epoch)
        per_strength = once_per_head + tuning.epochs * epoch
        training, training_one = once + len(strengths) * per_strength, once + per_strength
    passing = planned - start + times * (passed - planned)
    return Walk(Ready(train, cut, cav), passing, prepared - passed, training, training_one)


def seconds_per_step(correction: LatentCorrection, cut: Cut, activations: Activations, *, times: int = 1) -> float:
    """Return the median seconds of a step of one head on the cache, the first left out: it warms up.

    Args:
        times: The head sees every image so many times, as in :func:`walk`.
    """
    features = _repeated(compute_features(cut, activations, correction.features(activations)), times)
    ends: list[float] = []

    def watch(steps: Iterable[T], *, total: int, label: str) -> Iterator[T]:
        for step in steps:
            ends.append(clock())
            yield step

    with without_warnings():  # with random weights most strengths diverge, and only their time counts
        for _ in train_heads(cut, features, correction, [1.0], progress=watch, label="heads"):
            pass
    return median(end - start for start, end in pairwise(ends))


def _repeated(features: Features, times: int) -> Features:
    """Return each image so many times, never quite the same; as they are for once."""
    if times == 1:
        return features
    generator = np.random.default_rng(0)

    def repeat(array: np.ndarray) -> np.ndarray:
        noise = generator.standard_normal((len(array) * times, *array.shape[1:]), dtype=np.float32)
        noise *= np.float32(array.std() / 10)
        noise += np.concatenate([array] * times)
        return noise

    values, tangents = (tuple(map(repeat, arrays)) for arrays in (features.values, features.tangents))
    return Features(values, tangents, np.concatenate([features.labels] * times), features.n_positions)


def _validator(cut: Cut, clean: Activations, biased: Activations, times: int) -> Validator:
    without, with_artifact = (_repeated(compute_features(cut, images), times) for images in (clean, biased))
    return Validator(without, with_artifact, _BIASED_CLASS, original_predictions(cut, without))


class _Laps:
    """A watch that takes the time from the end of one epoch's validation to the end of the next."""

    def __init__(self, validator: Validator) -> None:
        self.validator = validator
        self.starts: list[float] = []
        self.ends: list[float] = []

    def __call__(self, heads: Heads) -> Sequence[Validation]:
        self.starts.append(clock())
        seen = self.validator(heads)
        self.ends.append(clock())
        return seen

    @property
    def once(self) -> float:
        """Seconds that only the first validation takes: then the images are written in the span's coordinates."""
        first, *others = (end - start for start, end in zip(self.starts, self.ends))
        return max(0.0, first - median(others))

    @property
    def laps(self) -> list[float]:
        return [end - start for start, end in pairwise(self.ends)]
