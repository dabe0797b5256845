"""Choose a strength: validation scores and selection rules."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import jvp

from hansfree.activations import Activations, Features, FeatureSpec, Live, compute_features
from hansfree.corrections.training import FunctionalHead, Heads
from hansfree.data import BiasedData
from hansfree.errors import DataError, UndefinedMetricError
from hansfree.metrics import (
    MIN_GROUP,
    BalancedAccuracyBiased,
    BalancedAccuracyClean,
    FlipRate,
    Score,
    is_flipped,
    large_classes,
    lost_classes,
)
from hansfree.models.surgery import Cut, exact_forward_mode
from hansfree.reasons import Reason, ReasonCode


@dataclass(frozen=True)
class Validation:
    """What one head did on the validation images, without and with the artifact."""

    clean: Score  # balanced accuracy
    biased: Score | None  # None where too few images with the artifact leave it unknown
    is_finite: bool
    lost: tuple[int, ...]  # classes that the original model answers and this head never does
    derivative: float | None = None  # mean |u|, where it was asked for
    accuracy_biased: float | None = None  # share of all images with the artifact that are right; None without any
    flips: Score | None = None  # flip rate, where the artifact is inserted
    by_class: Mapping[int, float] = field(default_factory=dict)  # accuracy on clean images, of classes that count

    def drops(self, later: Validation) -> dict[int, float]:
        """Return by how much the accuracy of each class is lower in another head."""
        return {label: self.by_class[label] - later.by_class[label] for label in self.by_class.keys() & later.by_class}


@dataclass(frozen=True, eq=False)
class Validator:
    """Judges heads on validation images without and with the artifact.

    Args:
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
        clean, clean_is_finite = heads.predictions(self.clean)
        biased, biased_is_finite = clean[:, :0], clean_is_finite
        if self.biased is not None:
            biased, biased_is_finite = heads.predictions(self.biased)
        finite = clean_is_finite & biased_is_finite & heads.are_finite()
        sizes = slope_sizes(heads, self.probed, self.biased_class) if self.probed else [None] * heads.count
        return [self.judge(clean[i], biased[i], bool(finite[i]), sizes[i]) for i in range(heads.count)]

    def judge(self, clean: np.ndarray, biased: np.ndarray, is_finite: bool, size: float | None) -> Validation:
        """Return what a model with these predictions does.

        Args:
            is_finite: Whether its weights and all of its logits are numbers.
            size: The mean ``|u|``, None where it was not measured.
        """
        labels, known = self.clean.labels, has_enough(self.clean.labels, self.least)
        if self.inserted:
            labels_biased, counted, least = labels, known, 0
        else:
            labels_biased = np.zeros(0, dtype=np.int64) if self.biased is None else self.biased.labels
            counted, least = np.ones(len(labels_biased), dtype=bool), self.least
        metric, biased_score = BalancedAccuracyBiased(), None
        if self.inserted or self.least < MIN_GROUP or not metric.too_few(labels_biased):
            with contextlib.suppress(UndefinedMetricError):
                biased_score = metric.of((biased == labels_biased)[counted], labels_biased[counted], least=least)
        flipped = is_flipped(clean, biased) if self.inserted else None
        return Validation(
            clean=BalancedAccuracyClean().of((clean == labels)[known], labels[known]),
            biased=biased_score,
            is_finite=is_finite and (size is None or bool(np.isfinite(size))),
            lost=lost_classes(self.original, clean),
            derivative=size,
            accuracy_biased=float((biased == labels_biased).mean()) if len(labels_biased) else None,
            flips=FlipRate().proportion(flipped[known]) if flipped is not None and known.any() else None,
            by_class={
                int(label): float((clean[labels == label] == label).mean()) for label in np.unique(labels[known])
            },
        )


def probed_images(clean: Activations, biased: Activations | None, *, inserted: bool) -> list[Activations]:
    """Return the images on which derivatives along the CAV are taken: those with the artifact, or all if too few."""
    if biased is not None and (inserted or len(biased) >= MIN_GROUP):
        return [biased]
    return [clean] if biased is None else [clean, biased]


def make_validator(
    cut: Cut,
    clean: Activations,
    biased: Activations | None,
    *,
    biased_class: int,
    original: np.ndarray,
    inserted: bool,
    shift: np.ndarray | None = None,
    edit: nn.Module | None = None,
) -> Validator:
    """Prepare validation images to judge heads on; ``u`` is measured along ``shift`` (1, channels), the artifact's."""
    probed: tuple[Features, ...] = ()
    if shift is not None:
        along = FeatureSpec(directions=shift, edit=edit)
        probed = tuple(compute_features(cut, each, along) for each in probed_images(clean, biased, inserted=inserted))
    spec = FeatureSpec(edit=edit)
    return Validator(
        compute_features(cut, clean, spec),
        None if biased is None else compute_features(cut, biased, spec),
        biased_class,
        original,
        inserted,
        least=MIN_GROUP,
        probed=probed,
    )


def original_predictions(cut: Cut, clean: Features, device: str = "cpu") -> np.ndarray:
    """Return the original model's predictions: the ``original`` of a `Validator` of its heads."""
    predictions: np.ndarray = Heads(cut, 1, device).predictions(clean)[0][0]
    return predictions


BATCH = 256  # images whose derivatives are taken together


@torch.no_grad()
def slope_sizes(heads: Heads, probed: Iterable[Features], label: int) -> list[float]:
    """Return per head the mean over images of ``|u|``: how far one step along the tangents moves a class's log-odds."""
    heads.cut.eval_mode()
    found = []
    for features in probed:
        for start in range(0, len(features), BATCH):
            values, tangents = heads.rows(features, slice(start, start + BATCH))
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
    reason: Reason
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

    code: ClassVar[ReasonCode]
    needs_derivative: ClassVar[bool] = False
    needs_counter_examples: ClassVar[bool] = True

    budget: float = 0.02
    class_budgets: Mapping[int, float] = field(default_factory=dict)

    @abstractmethod
    def pick(self, candidates: Sequence[Validation], admissible: Sequence[int], original: Validation) -> Selection:
        """Return one of the admissible candidates, of which there is at least one.

        Heads are judged as they come from training, and only the selected one and ``contenders`` stay in memory: what
        would be selected of all must be among them.
        """

    def summary(self, uncounted: Sequence[int] = ()) -> Reason:
        """Return the rule as data; ``uncounted`` classes have too few images to count."""
        return Reason(self.code, {**asdict(self), "uncounted": list(uncounted)})

    def choose(self, candidates: Sequence[Validation], original: Validation) -> Selection:
        """Return the best admissible candidate; of equals the first (the weakest strength)."""
        found = [self.rejection(candidate, original) for candidate in candidates]
        rejections = [rejection for rejection in found if rejection is not None]
        admissible = [i for i, rejection in enumerate(found) if rejection is None]
        if not admissible:
            return Selection(None, Reason(ReasonCode.NONE_ADMISSIBLE, {"rejections": rejections}))
        choice = self.pick(candidates, admissible, original)
        counts = {"admissible": len(admissible), "rejected": len(rejections)}
        return replace(choice, reason=Reason(choice.reason.code, {**choice.reason.values, **counts}))

    def selector(self, original: Validation, *, has_strength: bool = True) -> Select:
        """Return the rule as a function of the candidates' validations; without a strength the only one is taken."""
        if has_strength:
            return lambda candidates: self.choose(candidates, original)

        def take_only(candidates: Sequence[Validation]) -> Selection:
            rejection = self.rejection(candidates[0], original)
            if rejection is None:
                return Selection(0, Reason(ReasonCode.NO_STRENGTH))
            return Selection(0, Reason(ReasonCode.NO_STRENGTH_REJECTED, {"rejection": rejection}))

        return take_only

    def rejection(self, candidate: Validation, original: Validation) -> Reason | None:
        """Return why a head is not admissible; None if it is."""
        if not candidate.is_finite:
            return Reason(ReasonCode.DIVERGED)
        if candidate.lost:
            return Reason(ReasonCode.NEVER_ANSWERS, {"labels": list(candidate.lost)})
        if (drop := original.clean.value - candidate.clean.value) > self.budget + _ROUNDING:
            return Reason(ReasonCode.CLEAN_DROP, {"drop": drop, "budget": self.budget})
        drops = original.drops(candidate)
        over = {label: drops[label] - most for label, most in self.class_budgets.items() if label in drops}
        label = max(over, key=over.__getitem__, default=None)
        if label is None or over[label] <= _ROUNDING:
            return None
        values = {"label": label, "drop": drops[label], "budget": self.class_budgets[label]}
        return Reason(ReasonCode.CLASS_DROP, values)


@dataclass(frozen=True)
class BalancedRule(SelectionRule):
    """Best balanced accuracy on biased images among the heads that keep the clean one, within a budget."""

    code = ReasonCode.BALANCED_RULE

    def pick(self, candidates: Sequence[Validation], admissible: Sequence[int], original: Validation) -> Selection:
        """Return the best on biased images."""
        best = max(admissible, key=lambda i: _accuracy(candidates[i]))  # the first of equals
        code = ReasonCode.BEST_ON_VALIDATION if len(admissible) > 1 else ReasonCode.ONLY_ADMISSIBLE
        return Selection(best, Reason(code))


@dataclass(frozen=True)
class OneStandardErrorRule(BalancedRule):
    """The weakest strength whose accuracy on biased images is within one standard error of the best."""

    code = ReasonCode.ONE_STANDARD_ERROR_RULE

    def pick(self, candidates: Sequence[Validation], admissible: Sequence[int], original: Validation) -> Selection:
        """Return the first that is near enough to the best on biased images."""
        values = {i: _accuracy(candidates[i]) for i in admissible}
        best = max(admissible, key=values.__getitem__)
        score = candidates[best].biased
        enough = values[best] - (0.0 if score is None else score.stderr)
        taken = next(i for i in admissible if values[i] >= enough)
        # A better head to come raises what is enough; the next to reach it has to beat all before it.
        records = [i for i in admissible if all(values[i] > values[j] for j in admissible if j < i)]
        reason = Reason(ReasonCode.WITHIN_ONE_STDERR, {"accuracy": values[taken], "best": values[best]})
        return Selection(taken, reason, tuple(i for i in records if i > taken))


@dataclass(frozen=True)
class DerivativeRule(SelectionRule):
    """The weakest strength at which the artifact's first-order effect is all but gone; else where it is smallest.

    ``u`` is the change of the biased class's log-odds, to first order, when the artifact's mean shift is added to the
    activation at every position. Its minimum would always be the strongest admissible head.

    Args:
        share: Of the original model's mean ``|u|`` that may be left.
    """

    code = ReasonCode.DERIVATIVE_RULE
    needs_derivative: ClassVar[bool] = True
    needs_counter_examples: ClassVar[bool] = False

    share: float = 0.1

    def pick(self, candidates: Sequence[Validation], admissible: Sequence[int], original: Validation) -> Selection:
        """Return the first that is low enough, or the lowest."""
        before = _size(original)
        low = [i for i in admissible if _size(candidates[i]) <= self.share * before]
        taken = low[0] if low else min(admissible, key=lambda i: _size(candidates[i]))
        code = ReasonCode.EFFECT_BELOW_SHARE if low else ReasonCode.SMALLEST_EFFECT
        values = {"share": self.share, "effect": _size(candidates[taken]), "original": before}
        return Selection(taken, Reason(code, values))


@dataclass(frozen=True)
class PaperRule(SelectionRule):
    """The paper's rule: the best accuracy on biased validation images, whatever is lost on clean ones.

    A head that always answers one class can win where that class is frequent among the biased images.
    """

    code = ReasonCode.PAPER_RULE
    needs_counter_examples: ClassVar[bool] = False

    def rejection(self, candidate: Validation, original: Validation) -> Reason | None:
        """Reject only a head that diverged, or that no biased image can judge."""
        if candidate.accuracy_biased is None:
            return Reason(ReasonCode.NO_BIASED_IMAGE)
        return None if candidate.is_finite else Reason(ReasonCode.DIVERGED)

    def pick(self, candidates: Sequence[Validation], admissible: Sequence[int], original: Validation) -> Selection:
        """Return the best on biased images."""
        best = max(admissible, key=lambda i: candidates[i].accuracy_biased or 0.0)  # the first of equals
        return Selection(best, Reason(ReasonCode.BEST_BIASED_ACCURACY))


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
