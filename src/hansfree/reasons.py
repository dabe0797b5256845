"""Decisions as data: verdicts, reasons and warnings, each a code with its numbers.

`report/sentences.yaml` holds one template per code; nothing else turns them into English, and nothing parses English.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hansfree._internal.statistics import Interval


class VerdictLevel(str, Enum):
    """What a corrected model may be called, the best first."""

    AS_REFERENCE = "as_reference"  # flips no more answers than a model trained on clean data
    CORRECTED = "corrected"
    PARTLY_CORRECTED = "partly_corrected"
    NOT_CORRECTED = "not_corrected"
    UNKNOWN = "unknown"  # too few images with the artifact
    UNUSABLE = "unusable"  # failed, collapsed, or over budget


class ReasonCode(str, Enum):
    """What was decided, and why; the values are listed beside each code."""

    # Why a model is rejected, or is not called something better.
    NOT_FINITE = "not_finite"
    NO_MODEL = "no_model"  # selection: its reason
    NO_RESULT = "no_result"
    CHANCE_LEVEL = "chance_level"  # accuracy
    LOST_CLASS = "lost_class"  # classes
    REJECTED_ON_VALIDATION = "rejected_on_validation"  # rejection: its reason
    RULE_BROKEN = "rule_broken"
    CLEAN_BUDGET = "clean_budget"  # drop, stderr, budget
    CLASS_BUDGET = "class_budget"  # label, drop, stderr, budget
    STRONGER_EFFECT = "stronger_effect"  # before, after: what the artifact adds to the biased class's probability
    MORE_FALSE_ALARMS = "more_false_alarms"  # before, after: share of other classes' images; None where not measured
    FINE_TUNING_SUFFICES = "fine_tuning_suffices"
    INSERTION_DIFFERS = "insertion_differs"  # the inserted artifact is not the one of the labelled images
    # Why a candidate is not admissible on validation images.
    DIVERGED = "diverged"
    NEVER_ANSWERS = "never_answers"  # labels
    CLEAN_DROP = "clean_drop"  # drop, budget
    CLASS_DROP = "class_drop"  # label, drop, budget
    NO_BIASED_IMAGE = "no_biased_image"
    # Why a strength was selected, or none; with admissible and rejected, how many there were.
    NO_CANDIDATE = "no_candidate"
    NONE_ADMISSIBLE = "none_admissible"  # rejections: their reasons
    NO_STRENGTH = "no_strength"
    NO_STRENGTH_REJECTED = "no_strength_rejected"  # rejection: its reason
    ONLY_ADMISSIBLE = "only_admissible"
    BEST_ON_VALIDATION = "best_on_validation"
    WITHIN_ONE_STDERR = "within_one_stderr"  # accuracy, best
    EFFECT_BELOW_SHARE = "effect_below_share"  # share, effect, original
    SMALLEST_EFFECT = "smallest_effect"  # share, effect, original
    BEST_BIASED_ACCURACY = "best_biased_accuracy"
    BEST_BY_EVIDENCE = "best_by_evidence"  # candidates, evidence, effect, original
    NO_BETTER_THAN_ORIGINAL = "no_better_than_original"
    TRAINING_FAILED = "training_failed"  # errors
    # Rules of selection: budget, class_budgets, uncounted: labels of classes with too few images.
    BALANCED_RULE = "balanced_rule"
    ONE_STANDARD_ERROR_RULE = "one_standard_error_rule"
    DERIVATIVE_RULE = "derivative_rule"  # share
    PAPER_RULE = "paper_rule"
    # What to know about the data.
    SHARED_DONORS = "shared_donors"  # part: the held-out split with too few images with the artifact; count
    # What to know about a method's training.
    PAIRS_USED = "pairs_used"  # pairs, unpaired
    EMPTY_GROUPS = "empty_groups"  # only_with, only_without: labels
    GATE_RATE = "gate_rate"  # intended, rates: of held-out images {without, with}, each (share, images)
    TCAV_REFITTED = "tcav_refitted"
    TRAINED_ON_TRANSPLANTS = "trained_on_transplants"  # kind: of the transplants that it is judged by too


@dataclass(frozen=True)
class Reason:
    """A code and its numbers; a value can be another reason."""

    code: ReasonCode
    values: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Reason:
        """Rebuild a reason from what `dataclasses.asdict` and JSON made of it."""

        def rebuild(value: Any) -> Any:
            if isinstance(value, list):
                return [rebuild(each) for each in value]
            return cls.from_json(value) if isinstance(value, dict) and value.keys() == {"code", "values"} else value

        return cls(ReasonCode(content["code"]), {name: rebuild(value) for name, value in content["values"].items()})


class AdviceCode(str, Enum):
    """What a run advises on its models."""

    RECOMMENDED = "recommended"
    BEST_GUESS = "best_guess"  # too few test images to show whether the bias is gone
    NO_GAIN_ON_VALIDATION = "no_gain_on_validation"
    NO_GAIN_ON_TEST = "no_gain_on_test"
    REJECTED_ON_TEST = "rejected_on_test"
    NONE_ADMISSIBLE = "none_admissible"
    NONE_COMPARABLE = "none_comparable"  # the derivative compares none of the admissible methods
    ONLY_FINE_TUNING = "only_fine_tuning"
    WRONG_CLASS_ORDER = "wrong_class_order"


@dataclass(frozen=True)
class Advice:
    """Which corrected model to use, and the numbers that this rests on."""

    code: AdviceCode
    best: str | None = None  # on validation images
    scores: Mapping[str, float] = field(default_factory=dict)  # of admissible methods, the more the better
    original_score: float = 0.0
    flips: Mapping[str, float] = field(default_factory=dict)  # flip rates that decided, within one standard error
    not_compared: tuple[str, ...] = ()  # admissible methods that the derivative cannot compare
    is_derivative: bool = False  # scores are minus the mean size of derivatives; else accuracies with the artifact
    is_inserted: bool = False  # test images have the artifact inserted

    @property
    def method(self) -> str | None:
        """The method whose model is recommended, or is the best guess; None: no model is."""
        return self.best if self.code in (AdviceCode.RECOMMENDED, AdviceCode.BEST_GUESS) else None


@dataclass(frozen=True, kw_only=True)
class Improvement:
    """Score of a model minus that of a rival on the same test images, as 95 % intervals; None where not available."""

    flips: Interval | None = None
    flips_p: float | None = None  # McNemar's, of that difference
    accuracy: Interval | None = None  # balanced, with the artifact


@dataclass(frozen=True, kw_only=True)
class VerdictInputs:
    """The numbers that a verdict rests on; None where not available."""

    is_usable: bool = True  # did not fail or collapse, and keeps the budgets
    insertion_differs: bool = False  # the inserted artifact is not the one of the labelled images: no evidence
    flips: tuple[float, float] | None = None  # flip rate before and after
    most_flips: float | None = None  # flip rate after, at the upper end of its interval
    over_original: Improvement = Improvement()
    over_vanilla: Improvement | None = None  # None where plain fine-tuning was not run, failed, or is the model itself
    effect: tuple[float, float] | None = None  # artifact's effect on the biased class's probability, before and after
    effect_change: Interval | None = None
    false_alarms: tuple[float, float] | None = None  # of the biased class, with the artifact, before and after
    specificity_change: Interval | None = None  # one minus those, after minus before
    flips_beyond_reference: Interval | None = None  # flip rate after minus that of the reference model


@dataclass(frozen=True)
class Verdict:
    """What a model is called, what prevented a better level, and the numbers that this rests on."""

    level: VerdictLevel
    reasons: tuple[Reason, ...] = ()
    inputs: VerdictInputs = VerdictInputs()

    def to_json(self) -> dict[str, Any]:
        """Return plain data for ``results.json``."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Verdict:
        """Rebuild what `to_json` wrote."""
        inputs = _with_tuples(content["inputs"])
        for name in ("over_original", "over_vanilla"):
            if inputs[name] is not None:
                inputs[name] = Improvement(**_with_tuples(inputs[name]))
        reasons = tuple(map(Reason.from_json, content["reasons"]))
        return cls(VerdictLevel(content["level"]), reasons, VerdictInputs(**inputs))


def _with_tuples(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in content.items()}
