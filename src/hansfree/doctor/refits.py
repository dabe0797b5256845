"""The same CAV over and over, on parts of the samples: the one thing that every test of the doctor does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from hansfree.cavs import CAV
from hansfree.cavs.class_means import FloatArray
from hansfree.cavs.penalised import PENALTIES, PenalisedCAV

Bits = NDArray[np.bool_]
Counts = NDArray[np.int64]
Refit = Callable[[Bits, Counts], FloatArray]
"""(repeats, samples) bits and how often each sample counts -> (repeats, channels) unit directions.

A direction that a repeat cannot define is all zero: it agrees with nothing.
"""


def make_refit(cav: CAV, X: FloatArray) -> Refit:
    """Return what fits ``cav`` again; ``X`` must be centred.

    A signal-CAV, like the mean change of pairs, is a difference of two means, so that many are one matrix product. A
    penalised CAV keeps the penalty that it chose on all samples: choosing it again each time would take minutes, and on
    a bootstrap sample it would be wrong, because copies of one image on both sides of the cross-validation favour the
    weakest penalty.
    """
    if cav.is_mean_difference:
        return lambda bits, counts: _unit(_contrasts(bits, counts) @ X)

    def fit_each(bits: Bits, counts: Counts) -> FloatArray:
        return _unit(np.stack([_fit_once(cav, X, some_bits, times) for some_bits, times in zip(bits, counts)]))

    return fit_each


def _fit_once(cav: CAV, X: FloatArray, bits: Bits, times: Counts) -> FloatArray:
    rows = np.repeat(np.arange(len(X)), times)
    samples, labels = X[rows], bits[rows]
    difference: FloatArray = samples[labels].mean(axis=0) - samples[~labels].mean(axis=0)
    if not np.any(difference):
        return np.zeros(X.shape[1])
    if not isinstance(cav, PenalisedCAV):
        fitted: FloatArray = clone(cav).fit(samples, labels).direction_
        return fitted
    direction = _held_penalty(cav, samples - samples.mean(axis=0), labels)
    return direction if direction @ difference >= 0 else -direction


def _held_penalty(cav: PenalisedCAV, samples: FloatArray, labels: Bits) -> FloatArray:
    """Return the weights at the penalty of the whole, or at the next weaker one that leaves any."""
    for penalty in PENALTIES[cav.best_penalty_ >= PENALTIES]:
        weights: FloatArray = cav._path(samples, labels, np.array([penalty]))[0][0]
        if np.any(weights):
            return weights
    return np.zeros(samples.shape[1])


def _contrasts(bits: Bits, counts: Counts) -> FloatArray:
    """Return the weights of the samples in mean(artifact) - mean(clean), a row per repeat."""
    with_artifact, clean = counts * bits, counts * ~bits
    towards = with_artifact / with_artifact.sum(axis=1, keepdims=True)
    contrasts: FloatArray = towards - clean / clean.sum(axis=1, keepdims=True)
    return contrasts


def _unit(directions: FloatArray) -> FloatArray:
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    unit: FloatArray = directions / np.where(lengths > 0, lengths, 1.0)
    return unit
