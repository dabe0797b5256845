"""What an experiment was run on, and what is known about it beside its scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hansfree.artifacts import Artifact
from hansfree.experiments.plans import Grid
from hansfree.results import Row
from hansfree.studies.study import Published

PairedDifferences = Mapping[tuple[str, str], Mapping[str, tuple[float, float]]]


@dataclass(frozen=True)
class SubjectKey:
    """One model with one bias: a line of the paper's tables, a panel of its figures."""

    data: str
    artifact: str
    model: str

    @property
    def title(self) -> str:
        """Return all three words."""
        return " · ".join((self.model, self.artifact, self.data))


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a reader must know to read a subject's scores; None where it cannot be known."""

    chance_level: float | None = None  # balanced accuracy of always giving the same answer
    class_names: tuple[str, ...] = ()  # empty: a class is told by its number
    majority_rate: float | None = None
    is_localized: bool | None = None  # None: as the artifact of that name says, if there is one
    published: Published | None = None  # where data, artifact and model are the paper's
    departures: tuple[str, ...] = ()  # in what the setting is not the paper's
    grid: Grid = "own"  # whose units the strengths have
    reasons: Mapping[str, str] = field(default_factory=dict)  # method -> why this strength, or why none, was taken
    # (method, rival) -> metric -> the method's score minus the rival's on the same images, with its standard error
    paired: PairedDifferences = field(default_factory=dict)


Subjects = Mapping[SubjectKey, Sequence[Row]]
FactsBySubject = Mapping[SubjectKey, Facts]


def count_epochs(n: int) -> str:
    """Return the number with its noun."""
    return f"{n} epoch" if n == 1 else f"{n} epochs"


def is_localized(key: SubjectKey, facts: Facts) -> bool | None:
    """Tell whether the artifact has a place in the image; None for a natural one of which nothing was said."""
    if facts.is_localized is not None:
        return facts.is_localized
    artifact = Artifact.members().get(key.artifact)
    return None if artifact is None else artifact.localized
