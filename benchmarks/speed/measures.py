"""What a race finds: numbers that were measured several times, and how near they are to their targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal

Unit = Literal["ratio", "slope", "images/s", "seconds", "bytes"]


@dataclass(frozen=True)
class Target:
    """The limit that a median should keep."""

    kind: Literal["at most", "at least"]
    limit: float

    def is_met(self, value: float) -> bool:
        """Tell whether a value keeps the limit."""
        return value <= self.limit if self.kind == "at most" else value >= self.limit

    def verdict(self, value: float) -> str:
        """Say the limit, and whether a value keeps it."""
        sign = "<=" if self.kind == "at most" else ">="
        return f"{sign} {self.limit:g}: {'met' if self.is_met(value) else 'not met'}"


@dataclass(frozen=True)
class Measure:
    """One number, once per turn. Both parts of a ratio come from the same turn, so that they share the weather."""

    name: str  # "resnet18.path_over_forward"
    samples: tuple[float, ...]
    unit: Unit = "ratio"
    target: Target | None = None

    @property
    def value(self) -> float:
        """The median."""
        return median(self.samples)

    @property
    def low(self) -> float:
        """The smallest that was seen."""
        return min(self.samples)

    @property
    def high(self) -> float:
        """The largest that was seen."""
        return max(self.samples)

    def as_json(self) -> dict[str, Any]:
        """Return what :meth:`from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Measure:
        """Return the measure that was written."""
        target = content["target"]
        return cls(
            content["name"], tuple(content["samples"]), content["unit"], None if target is None else Target(**target)
        )


def ratio(name: str, ours: Sequence[float], theirs: Sequence[float], target: Target | None = None) -> Measure:
    """Return ours over theirs, turn by turn."""
    return Measure(name, tuple(one / other for one, other in zip(ours, theirs, strict=True)), target=target)


def rate(name: str, images: int, seconds: Sequence[float]) -> Measure:
    """Return images per second, turn by turn."""
    return Measure(name, tuple(images / one for one in seconds), "images/s")
