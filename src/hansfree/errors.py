"""Every error that hansfree raises on purpose.

The sentence of each says what is wrong, what was given, what is allowed, and the nearest match.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from numbers import Integral
from typing import Any, get_args


class HansfreeError(Exception):
    """Base of all errors that hansfree raises on purpose; the command line shows its sentence and exits with 1."""

    exit_code = 1


class OptionError(HansfreeError, ValueError):
    """An option has a value that is not allowed."""


class UnknownNameError(HansfreeError, ValueError):
    """A registered name that does not exist."""


class LayerNotFoundError(HansfreeError, ValueError):
    """A layer path that matches nothing in the model."""


class AmbiguousLayerError(HansfreeError, ValueError):
    """A layer that the model calls more than once."""


class SplitError(HansfreeError, RuntimeError):
    """A model that cannot be cut exactly at the layer."""


class DataError(HansfreeError, ValueError):
    """Images, labels or artifact labels that cannot be used."""


class CacheError(HansfreeError, RuntimeError):
    """A cache on disk that does not belong to this model, layer and data, or is damaged."""


class DivergedError(HansfreeError, RuntimeError):
    """Fine-tuning that ended in numbers that are not finite."""


class UndefinedMetricError(HansfreeError, ValueError):
    """A score that these data cannot define."""


class RunError(HansfreeError, RuntimeError):
    """A run folder that cannot be used."""


def nearest(given: str, allowed: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the closest of ``allowed``, or an empty string when none is close."""
    close = closest(given, allowed)
    return "" if close is None else f" Did you mean {close!r}?"


def closest(given: str, allowed: Iterable[str]) -> str | None:
    """Return the one of ``allowed`` that is most like what was given; None when none is close."""
    return next(iter(difflib.get_close_matches(given, list(allowed), n=1, cutoff=0.5)), None)


def import_optional(module: str, *, extra: str | None = None) -> Any:
    """Return a module that hansfree does not need, or only one extra of it; an `OptionError` if it is not there."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        how = (
            f"In your copy of the repository: pip install -e '.[{extra}]'."
            if extra
            else f"Try pip install {error.name}."
        )
        raise OptionError(f"{error.name} is not installed. {how}") from error


def check_count(option: str, given: object, *, least: int) -> None:
    """Raise an `OptionError` unless ``given`` is a whole number of at least ``least``."""
    if isinstance(given, bool) or not isinstance(given, Integral) or given < least:
        raise OptionError(f"{option} must be a whole number of at least {least}, but it is {given!r}.")


def check_choice(option: str, given: object, choices: Any) -> None:
    """Raise an `OptionError` unless ``given`` is one of the words of ``choices``, a ``Literal``."""
    words = get_args(choices)
    if given not in words:
        raise OptionError(
            f"{option} is {given!r}.{nearest(str(given), map(str, words))} Allowed: {', '.join(map(repr, words))}."
        )
