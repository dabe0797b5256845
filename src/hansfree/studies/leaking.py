"""Which class an artifact leaks into, as far as counts of training images tell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hansfree.errors import DataError

LEAST = 5
"""Training images of the biased class with and without the artifact: some CAVs choose their penalty by five folds, and
the doctor compares halves."""
_CLEARLY = 2  # times the share of the given class: less may be chance


def likely_class(carry: np.ndarray, all_of: np.ndarray) -> int:
    """Return the class of whose training images the largest share carries the artifact; of equals, the one with more.

    Args:
        carry: how many training images of each class carry it.
        all_of: how many training images each class has.
    """
    share = carry / np.maximum(all_of, 1)
    share[carry < LEAST] = -1  # a class of one image has a share of 0 or 1
    return int(np.lexsort((carry, share))[-1])


def doubt_class(given: int, carry: np.ndarray, all_of: np.ndarray, names: Sequence[str]) -> str | None:
    """Say that the artifact is mostly in another class than the given one; None where that is not clear.

    It is where more than half of the images with it are of one class, and not because that class is large.
    """
    most, share = int(carry.argmax()), carry / np.maximum(all_of, 1)
    if 2 * carry[most] <= carry.sum() or share[most] < _CLEARLY * share[given]:
        return None
    return (
        f"biased_class is {names[given]!r}, but {carry[most]} of the {carry.sum()} training images with the artifact "
        f"({100 * carry[most] / carry.sum():.0f} %) are of {names[most]!r}, and {carry[given]} of {names[given]!r}: is "
        "it the class that the artifact leaks into?"
    )


def check_enough(name: str, some: int, every: int, *, doubt: str | None = None) -> None:
    """Refuse a biased class whose training images show too little difference to learn from.

    Args:
        some: how many of them carry the artifact.
        every: how many there are.
        doubt: whether it is the right class.
    """
    if some < LEAST or every - some < LEAST:
        told = (
            f"{some} of the {every} training images of the biased class {name!r} carry the artifact. The direction "
            f"is learned within that class, from at least {LEAST} with and {LEAST} without."
        )
        raise DataError(" ".join(filter(None, (told, doubt))))
