"""Decisions as data: verdicts, reasons and warnings, each a code with its numbers.

`hansfree.report.text` holds one template per code; nothing else turns them into English, and nothing parses English.
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
    """Why a model is rejected, or is not called something better; the values are listed beside each code."""

    NOT_FINITE = "not_finite"
    NO_MODEL = "no_model"  # reason: what the selection said
    NO_RESULT = "no_result"
    CHANCE_LEVEL = "chance_level"  # accuracy
    LOST_CLASS = "lost_class"  # classes
    REJECTED_ON_VALIDATION = "rejected_on_validation"  # reason: what the selection said
    RULE_BROKEN = "rule_broken"
    CLEAN_BUDGET = "clean_budget"  # drop, stderr, budget
    CLASS_BUDGET = "class_budget"  # label, drop, stderr, budget
    STRONGER_EFFECT = "stronger_effect"  # before, after: what the artifact adds to the biased class's probability
    MORE_FALSE_ALARMS = "more_false_alarms"  # before, after: share of other classes' images; None where not measured
    FINE_TUNING_SUFFICES = "fine_tuning_suffices"


@dataclass(frozen=True)
class Reason:
    """A code and its numbers."""

    code: ReasonCode
    values: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Reason:
        """Rebuild a reason from what `dataclasses.asdict` and JSON made of it."""
        return cls(ReasonCode(content["code"]), content["values"])


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
    flips: tuple[float, float] | None = None  # flip rate before and after
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
