"""A first look: do bits show in these activations at all? Quick enough for every column that a run names."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hansfree.cavs.class_means import FloatArray
from hansfree.doctor.angles import of_both_halves
from hansfree.doctor.refits import Bits
from hansfree.doctor.repeats import SPARING, Repeats
from hansfree.doctor.solvers import new_cav
from hansfree.doctor.thresholds import level_of
from hansfree.progress import silent


@dataclass(frozen=True)
class Glance:
    """How well held-out samples are told apart, and whether that is better than with shuffled bits."""

    auc: float
    is_visible: bool


def expected_cosine(X: FloatArray, bits: Bits, *, cav: str, seed: int) -> float:
    """Return the cosine that a CAV of these samples is expected to have with the one that endless samples would give.

    From how far random halves agree (`hansfree.doctor.angles`); 0 where they do not.
    """
    features = X.astype(np.float64) - X.mean(axis=0, dtype=np.float64)
    fitted = new_cav(cav, bits, seed=seed).fit(features, bits)
    _, directions = Repeats(fitted, features, bits, seed=seed, effort=SPARING, progress=silent).halves()
    between = np.sum(directions[:, 0] * directions[:, 1], axis=1).mean()
    return float(np.sqrt(of_both_halves(between)))


def glance_at(X: FloatArray, bits: Bits, *, cav: str, seed: int) -> Glance:
    """Return whether a CAV of this kind learns anything from the bits; `examine_cav` says how far to trust it."""
    features = X.astype(np.float64) - X.mean(axis=0, dtype=np.float64)
    fitted = new_cav(cav, bits, seed=seed).fit(features, bits)
    repeats = Repeats(fitted, features, bits, seed=seed, effort=SPARING, progress=silent)
    auc = repeats.held_out().auc
    return Glance(auc, level_of("permutation_p", repeats.null().p_value(auc)) != "poor")
