"""Ratios of times that were taken in turns: what they are, and how they are kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from hansfree.files import write_json


@dataclass(frozen=True)
class Ratio:
    """One ratio, measured several times; both of its times come from the same turn, so that they share the weather."""

    name: str  # "resnet18.path_over_forward"
    samples: tuple[float, ...]

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


def write_ratios(path: Path, ratios: Iterable[Ratio], about: dict[str, Any]) -> None:
    """Write one flat object: each ratio under its name, its range beside it, and under ``about`` what was measured."""
    content: dict[str, Any] = {}
    for ratio in ratios:
        content |= {ratio.name: ratio.value, f"{ratio.name}.low": ratio.low, f"{ratio.name}.high": ratio.high}
    write_json(path, content | {"about": about})
