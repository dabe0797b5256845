"""Randomness by key: the same key gives the same numbers, and the caller's global state stays as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
import torch


@contextmanager
def seeded(*key: int) -> Iterator[torch.Generator]:
    """Key what torch draws within the block by ``key``; yields a generator of its own with the same key.

    Dropout and weight initialisation draw from the global generator and take no other, hence the fork.
    """
    number = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1)
    with torch.random.fork_rng():
        # For every kind of GPU that is not there, `torch.manual_seed` puts the whole call stack into words: up to some
        # milliseconds, in every step of a training.
        if _has_gpu():
            torch.random.manual_seed(number)
        else:
            torch.default_generator.manual_seed(number)
        yield torch.Generator().manual_seed(number)


@cache
def _has_gpu() -> bool:
    return torch.cuda.is_available() or torch.backends.mps.is_available()
