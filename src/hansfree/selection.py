"""Which strength is taken: the rule, and what a head did on the validation images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hansfree.activations import Features
from hansfree.metrics import (
    BalancedAccuracyBiased,
    BalancedAccuracyClean,
    Evidence,
    Score,
    lost_classes,
    predict_classes,
)
from hansfree.training import Heads, TrainedHead


@dataclass(frozen=True)
class Validation:
    """What one head did on the validation images, without and with the artifact."""

    clean: Score  # balanced accuracy
    biased: Score
    is_finite: bool
    lost: tuple[int, ...]  # classes that the original model answers and this head never does


@dataclass(frozen=True)
class Choice:
    """The strength that was taken (None: none could be), and why."""

    index: int | None
    reason: str


@dataclass(frozen=True)
class BalancedRule:
    """Best balanced accuracy on biased images among the heads that keep the clean one, within a budget.

    A head with weights or outputs that are not numbers, or one that never answers a class that the original model
    answers, is never taken: on unbalanced data a head that always says "benign" would look best.
    """

    budget: float = 0.02

    def __str__(self) -> str:
        return (
            f"best balanced accuracy on biased validation images, among heads that lose at most "
            f"{100 * self.budget:g} points on clean ones, are finite and still answer every class"
        )

    def choose(self, candidates: Sequence[Validation], original: Validation) -> Choice:
        """Return the best admissible candidate; of equals the first (the weakest strength)."""
        best: int | None = None
        for i, candidate in enumerate(candidates):
            if self.objection(candidate, original):
                continue
            if best is None or candidate.biased.value > candidates[best].biased.value:
                best = i
        if best is None:
            reasons = sorted({self.objection(candidate, original) for candidate in candidates})
            return Choice(None, f"no strength is admissible: {'; '.join(reasons)}")
        rejected = sum(bool(self.objection(candidate, original)) for candidate in candidates)
        admissible = len(candidates) - rejected
        found = f"best of {admissible} admissible strengths" if admissible > 1 else "the only admissible strength"
        return Choice(best, f"{found} ({rejected} rejected)")

    def objection(self, candidate: Validation, original: Validation) -> str:
        """Say why a head must not be taken; empty when it may."""
        if not candidate.is_finite:
            return "diverged"
        if candidate.lost:
            return f"never answers class {', '.join(map(str, candidate.lost))}"
        drop = original.clean.value - candidate.clean.value
        return f"loses more than {100 * self.budget:g} points on clean images" if drop > self.budget + 1e-12 else ""


@dataclass(frozen=True, eq=False)
class Validator:
    """Judges heads on validation images without and with the artifact.

    Args:
        least: Images that a class needs for its accuracy to count; that of fewer cannot be known. Where the artifact is
            in the scenes, all classes of the biased images count nevertheless: what is rare there is what the shortcut
            gets wrong, and without it the shortcut itself would look best.
    """

    clean: Features
    biased: Features
    biased_class: int
    original: np.ndarray  # the original model's predictions on the clean images
    inserted: bool = True  # the biased images are the clean ones with the artifact put in
    least: int = 1

    def __call__(self, heads: Heads) -> list[Validation]:
        """Return what every head does; the watch of the training loop."""
        clean, biased = heads.logits(self.clean).numpy(), heads.logits(self.biased).numpy()
        weights_are_finite = heads.are_finite()
        return [self._judge(clean[i], biased[i], weights_are_finite[i]) for i in range(heads.count)]

    def _judge(self, clean: np.ndarray, biased: np.ndarray, weights_are_finite: bool) -> Validation:
        known = has_enough(self.clean.labels, self.least)
        known_biased = known if self.inserted else has_enough(self.biased.labels, 1)
        evidence = Evidence(
            labels=self.clean.labels[known],
            biased_class=self.biased_class,
            logits_clean=clean[known],
            logits_biased=biased[known_biased],
            labels_biased=None if self.inserted else self.biased.labels[known_biased],
        )
        finite = weights_are_finite and bool(np.isfinite(clean).all() and np.isfinite(biased).all())
        return Validation(
            clean=BalancedAccuracyClean().compute(evidence),
            biased=BalancedAccuracyBiased().compute(evidence),
            is_finite=finite,
            lost=lost_classes(self.original, predict_classes(clean), clean.shape[1]),
        )


def has_enough(labels: np.ndarray, least: int) -> np.ndarray:
    """Return per image whether its class has at least so many."""
    _, place, counts = np.unique(labels, return_inverse=True, return_counts=True)
    enough: np.ndarray = (counts >= least)[place]
    return enough


@dataclass(frozen=True, eq=False)
class StrengthPath:
    """What one method did along its strengths; only the chosen head's weights are kept."""

    strengths: tuple[float, ...]
    histories: tuple[tuple[Validation, ...], ...]  # per strength, after every epoch
    scores: tuple[list[Score], ...]  # per strength, on the test images
    choice: Choice
    best: TrainedHead | None


def walk_path(
    heads: Iterable[TrainedHead],
    choose: Callable[[Sequence[Validation]], Choice],
    score: Callable[[TrainedHead], list[Score]],
) -> StrengthPath:
    """Choose among heads as they come from training, without keeping more than one of them in memory."""
    strengths: list[float] = []
    histories: list[tuple[Validation, ...]] = []
    scores: list[list[Score]] = []
    best: TrainedHead | None = None
    choice = Choice(None, "no head was trained")
    for head in heads:
        strengths.append(head.strength)
        histories.append(head.history)
        scores.append(score(head))
        choice = choose([history[-1] for history in histories])
        if choice.index == len(strengths) - 1:
            best = head
    return StrengthPath(tuple(strengths), tuple(histories), tuple(scores), choice, best)
