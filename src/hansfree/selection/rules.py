"""The rules by which a strength is taken, and which of them the data can feed.

The best rule looks at images with the artifact in every class: there a shortcut is wrong. Most natural biases have no
such counter-examples (every plaster is on a benign lesion). Then nobody can say how often a head is right with the
artifact; what can be known is how far the artifact still moves its answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from hansfree.errors import DataError, UndefinedMetricError
from hansfree.metrics import MIN_GROUP, class_group
from hansfree.metrics.base import large_classes
from hansfree.selection.validator import Validation
from hansfree.studies import BiasedData

_ROUNDING = 1e-12  # a head at the budget is within it


@dataclass(frozen=True)
class Choice:
    """The strength that was taken (None: none could be), and why."""

    index: int | None
    reason: str
    open: tuple[int, ...] = ()  # others that would be taken if a better head came after these


@dataclass(frozen=True)
class SelectionRule(ABC):
    """Takes one of several heads, from the weakest strength to the strongest, by what they did on validation images.

    A head with weights or outputs that are not numbers, or one that never answers a class that the original model
    answers, is never taken: on unbalanced data a head that always says "benign" would look best.

    Args:
        budget: How much balanced accuracy on clean images a head may lose.
        class_budgets: How much of its accuracy a class may lose there; others as much as the mean allows.
    """

    needs_derivative: ClassVar[bool] = False  # otherwise counter-examples

    budget: float = 0.02
    class_budgets: Mapping[int, float] = field(default_factory=dict)

    @property
    @abstractmethod
    def aim(self) -> str:
        """What is looked for among the admissible heads."""

    @abstractmethod
    def pick(self, candidates: Sequence[Validation], admissible: Sequence[int], original: Validation) -> Choice:
        """Return one of the admissible candidates, of which there is at least one.

        Of the first few candidates it must take the same as of all, as long as that is among them, or name it in
        ``open``: heads are judged as they come from training, and no other is kept.
        """

    def __str__(self) -> str:
        classes = "".join(f", at most {100 * most:g} of class {label}" for label, most in self.class_budgets.items())
        clean = f"lose at most {100 * self.budget:g} points on clean ones{classes}"
        return f"{self.aim}, among heads that {clean}, are finite and still answer every class"

    def choose(self, candidates: Sequence[Validation], original: Validation) -> Choice:
        """Return the best admissible candidate; of equals the first (the weakest strength)."""
        objections = [self.objection(candidate, original) for candidate in candidates]
        admissible = [i for i, objection in enumerate(objections) if not objection]
        if not admissible:
            reasons = [*sorted(set(objections)), *self._least_losses(candidates, original)]
            return Choice(None, f"no strength is admissible: {'; '.join(reasons)}")
        choice = self.pick(candidates, admissible, original)
        return replace(choice, reason=f"{choice.reason} ({len(candidates) - len(admissible)} rejected)")

    def _least_losses(self, candidates: Sequence[Validation], original: Validation) -> list[str]:
        """Say how near a strength came to each class's budget, where none kept it."""
        drops = [original.drops(candidate) for candidate in candidates if candidate.is_finite]
        least = {label: min(each[label] for each in drops if label in each) for label in self.class_budgets if drops}
        return [
            f"the least that a strength loses of class {label} is {100 * loss:.1f} points"
            for label, loss in least.items()
            if loss > self.class_budgets[label] + _ROUNDING
        ]

    def objection(self, candidate: Validation, original: Validation) -> str:
        """Say why a head must not be taken; empty when it may."""
        if not candidate.is_finite:
            return "diverged"
        if candidate.lost:
            return f"never answers {', '.join(map(class_group, candidate.lost))}"
        if original.clean.value - candidate.clean.value > self.budget + _ROUNDING:
            return f"loses more than {100 * self.budget:g} points on clean images"
        drops = original.drops(candidate)
        over = {label: drops[label] - most for label, most in self.class_budgets.items() if label in drops}
        label = max(over, key=over.__getitem__, default=None)
        if label is not None and over[label] > _ROUNDING:
            return f"loses more than {100 * self.class_budgets[label]:g} points of class {label} on clean images"
        return ""


@dataclass(frozen=True)
class BalancedRule(SelectionRule):
    """Best balanced accuracy on biased images among the heads that keep the clean one, within a budget."""

    @property
    def aim(self) -> str:
        """Accuracy with the artifact."""
        return "best balanced accuracy on biased validation images"

    def pick(self, candidates: Sequence[Validation], admissible: Sequence[int], original: Validation) -> Choice:
        """Return the best on biased images."""
        best = max(admissible, key=lambda i: _accuracy(candidates[i]))  # the first of equals
        several = len(admissible) > 1
        return Choice(
            best, f"best of {len(admissible)} admissible strengths" if several else "the only admissible strength"
        )


@dataclass(frozen=True)
class KneeRule(BalancedRule):
    """The weakest strength whose accuracy on biased images is within one standard error of the best.

    Beyond the knee of the path more strength buys nothing that these images could show, and changes the model more.
    """

    @property
    def aim(self) -> str:
        """The least change for the same accuracy."""
        return (
            "weakest strength whose balanced accuracy on biased validation images is within one standard error of the "
            "best"
        )

    def pick(self, candidates: Sequence[Validation], admissible: Sequence[int], original: Validation) -> Choice:
        """Return the first that is near enough to the best on biased images."""
        values = {i: _accuracy(candidates[i]) for i in admissible}
        best = max(admissible, key=values.__getitem__)
        score = candidates[best].biased
        enough = values[best] - (0.0 if score is None else score.stderr)
        taken = next(i for i in admissible if values[i] >= enough)
        # A better head to come raises what is enough; the next to reach it has to beat all before it.
        records = [i for i in admissible if all(values[i] > values[j] for j in admissible if j < i)]
        told = f"{100 * values[taken]:.1f} %, the best has {100 * values[best]:.1f} %"
        return Choice(
            taken,
            f"weakest of {len(admissible)} admissible strengths within one standard error of the best ({told})",
            tuple(i for i in records if i > taken),
        )


@dataclass(frozen=True)
class DerivativeRule(SelectionRule):
    """The weakest strength at which the artifact's first-order effect is all but gone; else where it is smallest.

    ``u`` is the change of the biased class's log-odds, to first order, when the artifact's mean shift is added to the
    activation at every position. Its size falls as the strength grows, so that its minimum would always be the
    strongest admissible head, whatever that costs.

    Args:
        share: Of the original model's mean ``|u|`` that may be left.
    """

    needs_derivative: ClassVar[bool] = True

    share: float = 0.1

    @property
    def aim(self) -> str:
        """The artifact's effect on the log-odds."""
        return (
            f"weakest strength that leaves at most {100 * self.share:g} % of the artifact's effect on the log-odds, to "
            "first order along the CAV (there are too few biased validation images to choose by accuracy), or else the "
            "smallest effect"
        )

    def pick(self, candidates: Sequence[Validation], admissible: Sequence[int], original: Validation) -> Choice:
        """Return the first that is low enough, or the lowest."""
        before = _size(original)
        low = [i for i in admissible if _size(candidates[i]) <= self.share * before]
        taken = low[0] if low else min(admissible, key=lambda i: _size(candidates[i]))
        after = _size(candidates[taken])
        changes = (
            f"adding the artifact moves the log-odds by {after:.3g} instead of {before:.3g} (mean, to first order)"
        )
        enough = f"at most {100 * self.share:g} % of the effect"
        kind = f"weakest that leaves {enough}, of" if low else f"no strength leaves {enough}; smallest of"
        return Choice(taken, f"{kind} {len(admissible)} admissible: {changes}")


def choose_rule(
    data: BiasedData, *, budget: float = 0.02, class_budgets: Mapping[int, float] | None = None
) -> SelectionRule:
    """Return the best rule that the validation images can feed."""
    rule = BalancedRule if has_counter_examples(data) else DerivativeRule
    return rule(budget, class_budgets or {})


def has_counter_examples(data: BiasedData) -> bool:
    """Tell whether the accuracy on validation images with the artifact is known in two classes at least.

    In one class alone a head that reads the artifact itself would be the best. Inserted, the artifact is in all.
    """
    return data.is_inserted or len(large_classes(data.val_biased.labels)) >= 2


def check_selectable(
    data: BiasedData, *, advice: str = f"At a share of 10 % that is {10 * MIN_GROUP} images of a class in all."
) -> None:
    """Refuse data of whose validation images no strength could be chosen: every rule guards the clean accuracy.

    Args:
        advice: a sentence on how there could be more of them.
    """
    images = data.val_clean
    if len(large_classes(images.labels)) < 2:
        counts = np.bincount(images.labels, minlength=len(images.class_names))
        found = ", ".join(f"{name} {count}" for name, count in zip(images.class_names, counts))
        raise DataError(
            f"A strength is chosen by the accuracy on clean validation images, which takes 2 classes of at least "
            f"{MIN_GROUP} of them; there are: {found}. {advice}"
        )


def _accuracy(validation: Validation) -> float:
    if validation.biased is None:
        raise UndefinedMetricError("The accuracy on biased validation images is not known: there are too few of them.")
    return validation.biased.value


def _size(validation: Validation) -> float:
    if validation.derivative is None:
        raise UndefinedMetricError("The derivative was not measured on the validation images.")
    return validation.derivative
