"""What all races share: each is one class in one file, and says what it found and from how much."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

from benchmarks.speed.measures import Measure
from benchmarks.speed.subject import Subject
from hansfree._internal.progress import Progress
from hansfree._internal.registry import Registered


@dataclass(frozen=True)
class Outcome:
    """What a race found."""

    measures: tuple[Measure, ...]
    facts: dict[str, Any] = field(default_factory=dict)  # how much was run
    notes: tuple[str, ...] = ()  # what was multiplied up from what, and whatever else a reader must know


class Race(Registered, ABC):
    """Two or more ways to the same thing, timed in turns. A member writes :meth:`measure`."""

    kind = "race"
    per_model: ClassVar[bool] = True  # False: once, whatever the models

    def takes(self, subject: Subject) -> bool:
        """Tell whether the race says anything about this model."""
        return True

    @abstractmethod
    def measure(self, subject: Subject, progress: Progress) -> Outcome:
        """Let the sides take turns, and compare within each turn."""
