"""Choose a strength: validation scores and selection rules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.func import jvp

from hansfree.activations import Features, Live
from hansfree.corrections.training import FunctionalHead, Heads
from hansfree.data import BiasedData
from hansfree.errors import DataError, UndefinedMetricError
from hansfree.metrics import (
    MIN_GROUP,
    BalancedAccuracyBiased,
    BalancedAccuracyClean,
    Evidence,
    Score,
    large_classes,
    lost_classes,
    predict_classes,
)
from hansfree.models.surgery import Cut, exact_forward_mode


@dataclass(frozen=True)
class Validation:
    """What one head did on the validation images, without and with the artifact."""

    clean: Score  # balanced accuracy
    biased: Score | None  # None where too few images with the artifact leave it unknown
    is_finite: bool
    lost: tuple[int, ...]  # classes that the original model answers and this head never does
    derivative: float | None = None  # mean |u|, where it was asked for
    by_class: Mapping[int, float] = field(default_factory=dict)  # accuracy on clean images, of classes that count

    def drops(self, later: Validation) -> dict[int, float]:
        """Return by how much the accuracy of each class is lower in another head."""
        return {label: self.by_class[label] - later.by_class[label] for label in self.by_class.keys() & later.by_class}


@dataclass(frozen=True, eq=False)
class Validator:
    """Judges heads on validation images without and with the artifact.

    Args:
        biased: None where there are none.
        least: Images that a class needs for its accuracy to count; that of fewer cannot be known.
        probed: Images with tangents along the artifact's shift, to measure ``u`` on; empty where it is not needed.
    """

    clean: Features
    biased: Features | None
    biased_class: int
    original: np.ndarray  # the original model's predictions on the clean images
    inserted: bool = True  # the biased images are the clean ones with the artifact inserted
    least: int = 1
    probed: tuple[Features, ...] = ()

    def __call__(self, heads: Heads) -> list[Validation]:
        """Return what every head does; the watch of the training loop."""
        clean = heads.logits(self.clean).numpy()
        biased = clean[:, :0] if self.biased is None else heads.logits(self.biased).numpy()
        sizes = slope_sizes(heads, self.probed, self.biased_class) if self.probed else [None] * heads.count
        weights_are_finite = heads.are_finite()
        return [self.judge(clean[i], biased[i], weights_are_finite[i], sizes[i]) for i in range(heads.count)]

    def judge(self, clean: np.ndarray, biased: np.ndarray, weights_are_finite: bool, size: float | None) -> Validation:
        """Return what a model with these logits does; ``size`` is the mean ``|u|``, None where it was not measured."""
        known = has_enough(self.clean.labels, self.least)
        labels_biased = np.zeros(0, dtype=np.int64) if self.biased is None else self.biased.labels
        evidence = Evidence(
            labels=self.clean.labels[known],
            biased_class=self.biased_class,
            logits_clean=clean[known],
            logits_biased=biased[known] if self.inserted else biased,
            labels_biased=None if self.inserted else labels_biased,
        )
        try:
            biased_score = BalancedAccuracyBiased(least=self.least).compute(evidence)
        except UndefinedMetricError:
            biased_score = None
        answers = predict_classes(clean)
        finite = weights_are_finite and bool(np.isfinite(clean).all() and np.isfinite(biased).all())
        return Validation(
            clean=BalancedAccuracyClean().compute(evidence),
            biased=biased_score,
            is_finite=finite and (size is None or bool(np.isfinite(size))),
            lost=lost_classes(self.original, answers, clean.shape[1]),
            derivative=size,
            by_class={
                int(label): float((answers[self.clean.labels == label] == label).mean())
                for label in np.unique(evidence.labels)
            },
        )


def original_predictions(cut: Cut, clean: Features, device: str = "cpu") -> np.ndarray:
    """Return the original model's predictions: the ``original`` of a `Validator` of its heads."""
    return predict_classes(Heads(cut, 1, device).logits(clean)[0].double().numpy())


@torch.no_grad()
def slope_sizes(heads: Heads, probed: Iterable[Features], label: int, *, batch_size: int = 256) -> list[float]:
    """Return per head the mean over images of ``|u|``: how far one step along the tangents moves a class's log-odds."""
    heads.cut.eval_mode()
    found = []
    for features in probed:
        for start in range(0, len(features), batch_size):
            values, tangents = heads.rows(features, slice(start, start + batch_size))
            steps = tuple(tangent[0] for tangent in tangents)

            def slope(head: FunctionalHead, values: Live = values, steps: Live = steps) -> Tensor:
                return jvp(lambda *inputs: log_odds(head(*inputs), label), values, steps)[1]  # type: ignore[no-any-return]

            with exact_forward_mode():
                found.append(heads.each(slope).abs().double().cpu())
    return torch.cat(found, dim=1).mean(1).tolist()


def log_odds(logits: Tensor, label: int) -> Tensor:
    """Return the log of a class's probability over that of all others together, ``(n,)``."""
    others = torch.cat([logits[:, :label], logits[:, label + 1 :]], dim=1)
    return logits[:, label] - others.logsumexp(1)


def has_enough(labels: np.ndarray, least: int) -> np.ndarray:
    """Return per image whether its class has at least ``least`` images."""
    _, place, counts = np.unique(labels, return_inverse=True, return_counts=True)
    enough: np.ndarray = (counts >= least)[place]
    return enough


_ROUNDING = 1e-12  # a head at the budget is within it


@dataclass(frozen=True)
class Selection:
    """The strength that was taken (None: none could be), and why."""

    index: int | None
    reason: str
    contenders: tuple[int, ...] = ()  # others that would be taken if a better head came after these


Select = Callable[[Sequence[Validation]], Selection]


@dataclass(frozen=True)
class SelectionRule(ABC):
    """Selects one of several heads, from the weakest strength to the strongest, by their validations.

    A head that diverged, or that never predicts a class that the original model predicts, is never selected: on
    unbalanced data a head that always says "benign" would look best.

    Args:
        budget: How much balanced accuracy on clean images a head may lose.
        class_budgets: How much of its accuracy a class may lose there; others as much as the mean allows.
    """

    needs_derivative: ClassVar[bool] = False  # otherwise counter-examples

    budget: float = 0.02
    class_budgets: Mapping[int, float] = field(default_factory=dict)

    @property
    @abstractmethod
    def _aim(self) -> str: ...

    @abstractmethod
    def pick(self, candidates: Sequence[Validation], admissible: Sequence[int], original: Validation) -> Selection:
        """Return one of the admissible candidates, of which there is at least one.

        Heads are judged as they come from training, and only the selected one and ``contenders`` stay in memory: what
        would be selected of all must be among them.
        """

    def __str__(self) -> str:
        classes = "".join(f", at most {100 * most:g} of class {label}" for label, most in self.class_budgets.items())
        clean = f"lose at most {100 * self.budget:g} points on clean ones{classes}"
        return f"{self._aim}, among heads that {clean}, are finite and still answer every class"

    def choose(self, candidates: Sequence[Validation], original: Validation) -> Selection:
        """Return the best admissible candidate; of equals the first (the weakest strength)."""
        rejections = [self.rejection(candidate, original) for candidate in candidates]
        admissible = [i for i, rejection in enumerate(rejections) if not rejection]
        if not admissible:
            return Selection(None, f"no strength is admissible: {'; '.join(sorted(set(rejections)))}")
        choice = self.pick(candidates, admissible, original)
        return replace(choice, reason=f"{choice.reason} ({len(candidates) - len(admissible)} rejected)")

    def selector(self, original: Validation, *, has_strength: bool = True) -> Select:
        """Return the rule as a function of the candidates' validations; without a strength the only one is taken."""
        if has_strength:
            return lambda candidates: self.choose(candidates, original)

        def take_only(candidates: Sequence[Validation]) -> Selection:
            rejection = self.rejection(candidates[0], original)
            return Selection(0, "has no strength to choose" + (f", but {rejection}" if rejection else ""))

        return take_only

    def rejection(self, candidate: Validation, original: Validation) -> str:
        """Return why a head is not admissible; empty if it is."""
        if not candidate.is_finite:
            return "diverged"
        if candidate.lost:
            return f"never answers {', '.join(f'class {label}' for label in candidate.lost)}"
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
    def _aim(self) -> str:
        return "best balanced accuracy on biased validation images"

    def pick(self, candidates: Sequence[Validation], admissible: Sequence[int], original: Validation) -> Selection:
        """Return the best on biased images."""
        best = max(admissible, key=lambda i: _accuracy(candidates[i]))  # the first of equals
        n = len(admissible)
        return Selection(best, f"best of {n} admissible strengths" if n > 1 else "the only admissible strength")


@dataclass(frozen=True)
class OneStandardErrorRule(BalancedRule):
    """The weakest strength whose accuracy on biased images is within one standard error of the best."""

    @property
    def _aim(self) -> str:
        return f"weakest strength whose {super()._aim.removeprefix('best ')} is within one standard error of the best"

    def pick(self, candidates: Sequence[Validation], admissible: Sequence[int], original: Validation) -> Selection:
        """Return the first that is near enough to the best on biased images."""
        values = {i: _accuracy(candidates[i]) for i in admissible}
        best = max(admissible, key=values.__getitem__)
        score = candidates[best].biased
        enough = values[best] - (0.0 if score is None else score.stderr)
        taken = next(i for i in admissible if values[i] >= enough)
        # A better head to come raises what is enough; the next to reach it has to beat all before it.
        records = [i for i in admissible if all(values[i] > values[j] for j in admissible if j < i)]
        accuracies = f"{100 * values[taken]:.1f} %, the best has {100 * values[best]:.1f} %"
        return Selection(
            taken,
            f"weakest of {len(admissible)} admissible strengths within one standard error of the best ({accuracies})",
            tuple(i for i in records if i > taken),
        )


@dataclass(frozen=True)
class DerivativeRule(SelectionRule):
    """The weakest strength at which the artifact's first-order effect is all but gone; else where it is smallest.

    ``u`` is the change of the biased class's log-odds, to first order, when the artifact's mean shift is added to the
    activation at every position. Its minimum would always be the strongest admissible head.

    Args:
        share: Of the original model's mean ``|u|`` that may be left.
    """

    needs_derivative: ClassVar[bool] = True

    share: float = 0.1

    @property
    def _aim(self) -> str:
        return (
            f"weakest strength that leaves at most {100 * self.share:g} % of the artifact's effect on the log-odds, to "
            "first order along the CAV (there are too few biased validation images to choose by accuracy), or else the "
            "smallest effect"
        )

    def pick(self, candidates: Sequence[Validation], admissible: Sequence[int], original: Validation) -> Selection:
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
        return Selection(taken, f"{kind} {len(admissible)} admissible: {changes}")


def choose_rule(
    data: BiasedData, *, budget: float = 0.02, class_budgets: Mapping[int, float] | None = None
) -> SelectionRule:
    """Return the best rule that the validation images can feed."""
    rule = BalancedRule if has_counter_examples(data) else DerivativeRule
    return rule(budget, class_budgets or {})


def has_counter_examples(data: BiasedData) -> bool:
    """Return whether the accuracy on validation images with the artifact is known in two classes at least.

    In one class alone a head that reads the artifact itself would be the best.
    """
    return data.is_inserted or len(large_classes(data.val_biased.labels)) >= 2


def check_selectable(
    data: BiasedData, *, advice: str = f"At a share of 10 % that is {10 * MIN_GROUP} images of a class in all."
) -> None:
    """Raise for validation images by which no strength could be chosen, with advice on how to get more."""
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
