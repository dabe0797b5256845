"""What is known about a CAV, as data: levels, findings, and the thresholds they are judged by."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

from pydantic import TypeAdapter

from hansfree.errors import DataError

Level = Literal["good", "fair", "poor", "unknown"]
FORMAT = "hansfree.diagnosis.1"


TARGET = 10.0  # degrees; see THRESHOLDS["expected_error"]
LEAST = 4  # images with and without the artifact: two for each half


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One number about the direction; `hansfree.report` has the sentence of each name."""

    name: str
    value: float | None  # None where these data cannot define it
    stderr: float | None = None
    interval: tuple[float, float] | None = None  # the middle 95 % over repeats
    level: Level


@dataclass(frozen=True)
class CurvePoint:
    """What ``n`` artifact images give, with clean ones in the same proportion as in the whole."""

    n: int
    angle: float  # degrees, expected, to the direction of endless images
    interval: tuple[float, float]  # the middle 95 % over repeats


@dataclass(frozen=True)
class SuspectLabel:
    """A sample whose held-out score fits the other class ``odds`` times better than its own."""

    id: int | str
    has_artifact: bool  # as it is listed
    score: float  # standard deviations from the border, positive towards the artifact
    odds: float


@dataclass(frozen=True)
class Agreement:
    """Cosines between the directions of all solvers that could be fitted."""

    names: tuple[str, ...]
    cosines: tuple[tuple[float, ...], ...]

    def between(self, one: str, other: str) -> float:
        """Return the cosine of two solvers' directions."""
        return self.cosines[self.names.index(one)][self.names.index(other)]


@dataclass(frozen=True)
class Shuffled:
    """What shuffled artifact labels gave."""

    n: int  # shuffles
    auc: float  # held out; 95 % of the shuffles stayed below
    angle: float  # degrees between the directions of two halves, the median
    least_angle: float  # which 95 % of the shuffles exceeded


@dataclass(frozen=True)
class ProposedLabels:
    """How many artifact labels the labelling page proposed, beside those that a person gave."""

    n: int
    n_with: int  # by a person
    n_without: int

    @property
    def are_examined(self) -> bool:
        """Whether they were examined, too: a person gave too few, so that agreement with them is circular."""
        return min(self.n_with, self.n_without) < LEAST


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Whether a direction can be trusted; `hansfree.report.describe_diagnosis` puts it in words."""

    cav: str
    n_artifact: int
    n_clean: int
    is_paired: bool  # the same images without and with the artifact
    level: Level
    findings: tuple[Finding, ...]  # the weightiest first
    curve: tuple[CurvePoint, ...]
    suspect_labels: tuple[SuspectLabel, ...]  # the most suspicious first
    agreement: Agreement
    shuffled: Shuffled
    proposed: ProposedLabels | None  # None where a person gave all labels
    scores: tuple[float, ...]  # held out, of every sample in the order given; as in `SuspectLabel`
    has_artifact: tuple[bool, ...]

    @property
    def is_visible(self) -> bool:
        """Whether the artifact shows at all."""
        return self.finding("permutation_p").level != "poor"

    @property
    def is_at_limit(self) -> bool:
        """Whether the expected error is past `TARGET` degrees by less than is written."""
        return TARGET < (self.finding("expected_error").value or 0.0) < TARGET + 0.5

    def finding(self, name: str) -> Finding:
        """Return the finding called ``name``."""
        by_name = {found.name: found for found in self.findings}
        if name not in by_name:
            raise DataError(f"This diagnosis has no finding {name!r}; it has {', '.join(by_name)}.")
        return by_name[name]

    def to_json(self) -> str:
        """Return everything as JSON text, readable for people."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=2, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Diagnosis:
        """Rebuild what `to_json` wrote."""
        try:
            content = json.loads(text)
            if content.pop("format") != FORMAT:
                raise KeyError("format")
            return TypeAdapter(Diagnosis).validate_python(content)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"This is no diagnosis in the format {FORMAT!r}, or it is damaged ({error!r}).") from error


@dataclass(frozen=True)
class Threshold:
    """Up to ``good`` the level is good, up to ``fair`` it is fair; from there on poor. More is better if said so."""

    good: float
    fair: float
    more_is_better: bool = False

    def level(self, value: float) -> Level:
        """Return how good ``value`` is."""
        sign = -1 if self.more_is_better else 1
        if sign * value <= sign * self.good:
            return "good"
        return "fair" if sign * value <= sign * self.fair else "poor"


# Calibrated on Gaussian samples with a known direction: docs/decisions/0013-diagnose-by-expected-angle.md.
THRESHOLDS = {
    # Five percent; half of it is the least that the slower solvers' 39 shuffles can show.
    "permutation_p": Threshold(0.025, 0.05),
    # Normal scores with their means 1.8 and 0.95 standard deviations apart. Below, the artifact is hardly visible in
    # this layer.
    "held_out_auc": Threshold(0.9, 0.75, more_is_better=True),
    # Degrees. Of a shift along the true direction, sin(error) remains when the fitted direction is removed: 17 % of its
    # length at 10 degrees, 34 % at 20.
    "expected_error": Threshold(TARGET, 20.0),
    # Degrees between halves at expected errors of 10 and 20: cos = 1 / (1 + 2 tan²(error)).
    "split_half_angle": Threshold(19.7, 37.8),
    # Degrees at expected errors of 10 and 20: tan = sin(error). Pure noise shows 45 degrees, not 90.
    "bootstrap_angle": Threshold(9.9, 18.9),
    # Absolute cosine. Removing the direction takes its square of the squared distance between the classes: a tenth at
    # 0.3, a third at 0.6.
    "class_overlap": Threshold(0.3, 0.6),
    # Share of samples. Wrong labels shrink the difference of the means by about their share.
    "suspect_labels": Threshold(0.0, 0.1),
}


def level_of(name: str, value: float) -> Level:
    """Return how good the finding ``name`` is at ``value``."""
    return THRESHOLDS[name].level(value)
