"""Names of methods along another CAV than the run's own: ``rr-clarc@svm`` is RR-ClArC along the SVM's direction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hansfree.cavs import CAV
from hansfree.corrections.base import CAVCorrection, Correction
from hansfree.errors import OptionError
from hansfree.registry import RESERVED


def goes_along_cav(method: str) -> bool:
    """Tell whether a registered method goes along a CAV at all."""
    return issubclass(Correction.named(method), CAVCorrection)


def along_cavs(methods: Sequence[str], cavs: Sequence[str]) -> Iterator[str]:
    """Yield each method and, where it goes along a CAV, its names along further ones."""
    for method in methods:
        yield method
        if goes_along_cav(method):
            yield from (f"{method}{RESERVED}{cav}" for cav in cavs)


def split_name(name: str) -> tuple[str, str | None]:
    """Return the method's own name, and the further CAV that it goes along (None: the run's); nothing is checked."""
    method, _, cav = name.partition(RESERVED)
    return method, cav or None


def method_named(name: str) -> type[Correction]:
    """Return the member that a name is about; one that nobody has, or that cannot go that way, is an error."""
    method, cav = split_name(name)
    member = Correction.named(method)
    if RESERVED in name:
        CAV.named(cav or "")
        if not goes_along_cav(method):
            raise OptionError(f"There is no {name!r}: {method} goes along no CAV. Leave out {RESERVED}{cav}.")
    return member
