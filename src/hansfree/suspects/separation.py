"""How far a group stands apart from the rest of its class, and how far groups do that where there are none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hansfree.metrics.auroc import area_under
from hansfree.suspects.spectral import BoolArray, FloatArray, group_points

_WORLDS = 20  # without groups: enough for a mean and a spread, which the p-value is taken from
_MOST_POINTS = (
    400  # in such a world; fewer than the class has stand further apart, so that the test is on the safe side
)
_SHARED = 0.1  # part of a group that may belong to others already
_MOST = 2 / 3  # of the class: more is the class itself, from which others stand apart
_RIDGE = 1e-6
SURE = 0.65  # AUC from which on the model is called surer of some images than of others


@dataclass(frozen=True)
class Null:
    """The largest separation in worlds without groups: its logarithm's mean and spread."""

    mean: float
    spread: float

    def p_value(self, separation: float) -> float:
        """Return how likely a group that far apart is where there are none."""
        z = (math.log(max(separation, 1e-12)) - self.mean) / max(self.spread, 1e-12)
        return 0.5 * math.erfc(z / math.sqrt(2))

    @property
    def limit(self) -> float:
        """The separation that one world in twenty reaches."""
        return math.exp(self.mean + 1.645 * self.spread)


def separation_of(points: FloatArray, inside: BoolArray) -> float:
    """Return the Mahalanobis distance between a group and the rest, in spreads within the two."""
    one, other = points[inside], points[~inside]
    step = one.mean(axis=0) - other.mean(axis=0)
    within = np.concatenate([one - one.mean(axis=0), other - other.mean(axis=0)])
    covariance = within.T @ within / max(len(points) - 2, 1)
    covariance += (_RIDGE * np.trace(covariance) / len(step) + np.finfo(np.float64).tiny) * np.eye(len(step))
    return float(np.sqrt(step @ np.linalg.solve(covariance, step)))


def imagine_null(points: FloatArray, *, seed: int) -> Null:
    """Draw worlds of one cloud with the spreads and the tails of these points, and group them alike (SigClust's idea).

    Points are on their principal axes, so that their spreads are all of their covariance. A cloud has every distance
    from the centre as often as the class, in a direction of chance.
    """
    spreads, count = points.std(axis=0), min(len(points), _MOST_POINTS)
    moves = spreads > 0
    distances = np.linalg.norm(points[:, moves] / spreads[moves], axis=1)
    largest = []
    for world in range(_WORLDS):
        rng = np.random.default_rng((seed, world))
        directions = rng.normal(size=(count, len(spreads)))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        drawn = directions * rng.choice(distances, (count, 1)) * spreads
        groups = group_points(drawn, seed=seed)
        largest.append(max((separation_of(drawn, inside) for inside in groups), default=1.0))
    logs = np.log(largest)
    return Null(float(logs.mean()), float(logs.std(ddof=1)))


def choose_groups(points: FloatArray, groups: Sequence[BoolArray], surety: FloatArray) -> list[BoolArray]:
    """Return groups that do not overlap; the furthest apart is taken first.

    Of the two sides of a border only one is a group: the other is the rest of the class.

    Args:
        surety: of the model's answers, by which the side is chosen.
    """
    apart = sorted(((separation_of(points, inside), number) for number, inside in enumerate(groups)), reverse=True)
    taken = np.zeros(len(points), dtype=bool)
    chosen = []
    for _, number in apart:
        inside = _side(groups[number], surety)
        if (inside & taken).sum() <= _SHARED * inside.sum():
            chosen.append(inside & ~taken)
            taken |= inside
    return chosen


def _side(inside: BoolArray, surety: FloatArray) -> BoolArray:
    """Return the side of a border that is the group: the smaller, or the other if the model is surer of it."""
    smaller, larger = (inside, ~inside) if 2 * inside.sum() <= len(inside) else (~inside, inside)
    is_surer = larger.mean() <= _MOST and area_under(surety, larger)[0] >= SURE
    return larger if is_surer else smaller
