"""The contract of all corrections: facts about a method, and candidates, one per strength."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import nn

from hansfree._internal.progress import Progress, silent
from hansfree._internal.registry import Registered
from hansfree.errors import HansfreeError, OptionError


class Need(Enum):
    """What a method needs besides labelled images."""

    CAV = "cav"
    ARTIFACT_LABELS = "artifact labels"
    PAIRS = "pairs"  # images without the artifact, and the same images with it inserted
    MASKS = "masks"  # where the artifact is


@dataclass(frozen=True, kw_only=True)
class MethodInfo:
    """Facts about a method that pipeline, command line and report read."""

    title: str = ""  # as users know it from the paper; the registered name by default
    strengths: tuple[float, ...] = ()  # of a run; empty for a method without a strength
    needs: frozenset[Need] = frozenset()
    in_default_run: bool = False  # it runs where no method is named
    uses_seed: bool = True  # another seed gives another model, unless the optimizer is "converged"
    removes_direction: bool = False  # the corrected model contains a module that removes the direction
    paper_strengths: tuple[float, ...] = ()  # those of the paper, in the units of `paper_options`
    paper_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_strength(self) -> bool:
        """Whether there is a strength to choose."""
        return bool(self.strengths)

    def strengths_to_try(self, given: Sequence[float] | None = None) -> list[float]:
        """Return the strengths to choose from: those given, or the method's own; none where it has no strength."""
        return sorted(set(given or self.strengths)) if self.has_strength else []


@dataclass(frozen=True, eq=False)
class Candidate:
    """A corrected model of one strength, built on request, or the error for which there is none."""

    method: str
    strength: float
    build: Callable[[], nn.Module] | None
    error: HansfreeError | None = None
    history: tuple[Any, ...] = ()  # validations after every epoch, where a validator was given

    @property
    def model(self) -> nn.Module | None:
        """The corrected model; None after an error."""
        return None if self.build is None else self.build()


class Correction(Registered, ABC):
    """A way to unlearn a bias, by a penalty times ``strength``: a `LatentCorrection` or a `DeepCorrection`."""

    kind = "method"
    rank = 100  # in tables: the paper's methods come first
    info: ClassVar[MethodInfo] = MethodInfo()

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(name=name, **kwargs)
        if name is not None and ("info" not in cls.__dict__ or not cls.info.title):
            cls.info = replace(cls.info, title=name)  # never the title of the method it is a variation of

    def __init__(self, *, strength: float = 1.0) -> None:
        if not (np.isfinite(strength) and strength >= 0):
            raise OptionError(f"strength is {strength}; it must be a number of at least 0.")
        self.strength = strength

    @classmethod
    def defaults(cls) -> list[str]:
        """Return the names of the methods that run where none is named, in their order."""
        return [name for name, member in cls.members().items() if member.info.in_default_run]

    @abstractmethod
    def candidates(
        self,
        model: nn.Module,
        data: Any,
        strengths: Sequence[float] | None = None,
        *,
        folder: Path | None = None,
        progress: Progress = silent,
    ) -> Iterator[Candidate]:
        """Yield one candidate per strength, in order.

        Args:
            data: Activations for latent methods, images with artifact labels for deep ones.
            strengths: the method's own by default.
            folder: where deep methods keep a checkpoint per strength, so that a stopped path resumes.
        """

    def correct(
        self, model: nn.Module, data: Any, *, folder: Path | None = None, progress: Progress = silent
    ) -> nn.Module:
        """Return a corrected model of the same class; ``model`` is not changed."""
        (candidate,) = self.candidates(model, data, [self.strength], folder=folder, progress=progress)
        if candidate.error is not None:
            raise candidate.error
        assert candidate.build is not None
        return candidate.build()
