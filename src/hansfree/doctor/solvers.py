"""The direction beside others: those of the other solvers, and the one that tells the classes apart."""

from __future__ import annotations

import numpy as np

from hansfree.cavs import CAV
from hansfree.cavs.class_means import FloatArray
from hansfree.doctor.diagnosis import Agreement
from hansfree.doctor.refits import Bits, Counts
from hansfree.errors import DataError
from hansfree.progress import Progress


def new_cav(name: str, has_artifact: Bits, *, seed: int) -> CAV:
    """Return an unfitted CAV whose folds, where it has any, these samples can fill."""
    cav: CAV = CAV.named(name)()
    options = cav.get_params()
    fewest = int(min(has_artifact.sum(), (~has_artifact).sum()))
    own = {"folds": min(options.get("folds", fewest), fewest), "seed": seed}
    cav.set_params(**{option: value for option, value in own.items() if option in options})
    return cav


def compare_solvers(X: FloatArray, has_artifact: Bits, fitted: CAV, *, seed: int, progress: Progress) -> Agreement:
    """Return the cosines between all registered solvers; one that these samples defeat is left out."""
    directions = {}
    members = dict.fromkeys([*CAV.from_marks(), fitted.name])
    for name in progress(members, total=len(members), label="CAV doctor: other solvers"):
        try:
            cav = fitted if name == fitted.name else new_cav(name, has_artifact, seed=seed).fit(X, has_artifact)
        except DataError:
            continue  # shown by its absence; the examined CAV itself was fitted before
        directions[name] = cav.direction_
    stacked = np.stack(list(directions.values()))
    cosines = np.clip(stacked @ stacked.T, -1.0, 1.0)
    np.fill_diagonal(cosines, 1.0)
    return Agreement(tuple(directions), tuple(tuple(row) for row in cosines.tolist()))


def overlap_with_class(
    X: FloatArray, is_clean: Bits, others: FloatArray, halves: Counts, directions: FloatArray
) -> FloatArray:
    """Return the cosine of each half's direction with the way from the other classes to the biased one, (repeats,).

    The clean images of one half never meet the direction of the same half: their noise is in both, with opposite
    signs, and would make any two directions look opposed.

    Args:
        X: Centred activations.
        is_clean: Which samples are images of the biased class without the artifact.
        others: Activations of clean images of the other classes, centred alike.
        halves: (repeats, 2, samples), which samples each half has.
        directions: (repeats, 2, channels), unit, of each half.
    """
    clean = (halves * is_clean).astype(np.float64)
    n_clean = clean.sum(axis=2, keepdims=True)
    class_directions = (clean / np.maximum(n_clean, 1)) @ X - others.mean(axis=0)
    class_directions *= n_clean > 0  # a half without the class agrees with nothing
    lengths = np.linalg.norm(class_directions, axis=2, keepdims=True)
    class_directions /= np.where(lengths > 0, lengths, 1.0)
    cosines: FloatArray = np.mean(np.sum(directions[:, ::-1] * class_directions, axis=2), axis=1)
    return cosines
