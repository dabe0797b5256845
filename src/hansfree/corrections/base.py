"""The contract of all corrections: facts about a method, and candidates, one per strength."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
from sklearn.base import clone as sklearn_clone
from torch import nn
from typing_extensions import Self

from hansfree._internal.progress import Progress, silent
from hansfree._internal.registry import Registered
from hansfree.errors import HansfreeError, OptionError, nearest


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
    inserts_artifact: bool = False  # into training images; besides methods that need pairs
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
    build: Callable[[], nn.Module] | HansfreeError

    @property
    def error(self) -> HansfreeError | None:
        """Why there is no model."""
        return self.build if isinstance(self.build, HansfreeError) else None

    @property
    def model(self) -> nn.Module | None:
        """The corrected model; None after an error."""
        return None if isinstance(self.build, HansfreeError) else self.build()


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

    @classmethod
    def _parameter_names(cls) -> list[str]:
        """Return the names of the constructor's parameters, as scikit-learn reads them."""
        parameters = [*inspect.signature(cls.__init__).parameters.values()][1:]
        return [each.name for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]

    @final
    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the options, as scikit-learn's estimators do; with ``deep`` also those of the fine-tuning and CAV."""
        found: dict[str, Any] = {name: getattr(self, name) for name in self._parameter_names()}
        for name, value in [*found.items()] if deep else []:
            if is_dataclass(value) and not isinstance(value, type):
                found |= {f"{name}__{each.name}": getattr(value, each.name) for each in fields(value)}
            elif hasattr(value, "get_params"):
                found |= {f"{name}__{key}": inner for key, inner in value.get_params().items()}
        return found

    @final
    def set_params(self, **params: Any) -> Self:
        """Change options, such as ``strength=3`` or ``tuning__epochs=2``; raise for one that does not exist."""
        own = self.get_params(deep=False)
        nested: dict[str, dict[str, Any]] = {}
        for key, value in params.items():
            name, _, inner = key.partition("__")
            if name not in own:
                known = ", ".join(own)
                raise OptionError(f"{type(self).__name__} has no option {name!r}.{nearest(name, own)} Known: {known}.")
            if inner:
                nested.setdefault(name, {})[inner] = value
            else:
                own[name] = value
        for name, options in nested.items():
            value = own[name]
            is_data = is_dataclass(value) and not isinstance(value, type)
            own[name] = replace(value, **options) if is_data else sklearn_clone(value).set_params(**options)
        vars(self).update(vars(type(self)(**own)))  # checks the options as a new one does
        return self

    @final
    def clone(self, **params: Any) -> Self:
        """Return a copy with other options; a fitted CAV stays fitted, also by scikit-learn's ``clone``.

        Examples:
            >>> import hansfree as hf
            >>> hf.Vanilla(strength=2.0).clone(tuning__epochs=3).tuning.epochs
            3
        """
        return type(self)(**self.get_params(deep=False)).set_params(**params)

    def __sklearn_clone__(self) -> Self:
        return self.clone()

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        options = self.get_params(deep=False)
        shown = (f"{key}={value!r}" for key, value in options.items() if not _is_default(value, defaults[key].default))
        return f"{type(self).__name__}({', '.join(shown)})"

    @final
    def describe(self) -> dict[str, str]:
        """Return what the table of results says about the method and its options."""
        options = {name: str(getattr(self, name)) for name in ("target", "norm") if hasattr(self, name)}
        cav = getattr(self, "cav", None)
        return {"method": self.name, **({} if cav is None else {"cav": cav.label}), **options}

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

    @final
    def correct(
        self, model: nn.Module, data: Any, *, folder: Path | None = None, progress: Progress = silent
    ) -> nn.Module:
        """Return a corrected model of the same class; ``model`` is not changed."""
        (candidate,) = self.candidates(model, data, [self.strength], folder=folder, progress=progress)
        if isinstance(candidate.build, HansfreeError):
            raise candidate.build
        return candidate.build()


def _is_default(value: object, default: object) -> bool:
    if default is None and is_dataclass(value) and not isinstance(value, type):
        return value == type(value)()
    return value is default or (isinstance(value, str | int | float) and value == default)
