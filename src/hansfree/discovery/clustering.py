"""Spectral clusters of one class, their separation from the rest, and its distribution without clusters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.linalg import qr
from scipy.sparse import csr_matrix, diags
from scipy.sparse.linalg import eigsh
from scipy.stats import norm

from hansfree._internal.statistics import auc as area_under
from hansfree.discovery.properties import (
    LEVELS,
    SIGNIFICANT,
    WORDS,
    BoolArray,
    FloatArray,
    IntArray,
    Level,
    Measurements,
    compare_groups,
    format_p,
    rank_columns,
)

MIN_CLASS = 30  # images of a class: with fewer no cluster can be distinguished from chance
MIN_CLUSTER = 5  # images: fewer are outliers
_MIN_SHARE = 0.01  # of the class
_MAX_CLUSTERS = 8
_MAX_AXES = 20  # principal axes: the others are noise that blurs the neighbours
_CONSTANT = 1e-9  # standard deviation of a channel, relative to the largest, below which it is dropped
_CLIP = 2.5  # standard deviations
_NULL_SAMPLES = 20  # without clusters: enough for the mean and standard deviation behind the p-value
_MAX_NULL_POINTS = 400  # per sample; fewer points than the class has are separated further, so the test is conservative
_MAX_OVERLAP = 0.1  # share of a cluster that may belong to others already
_MAX_SHARE = 2 / 3  # of the class: more is the class itself
_RIDGE = 1e-6
CONFIDENT = 0.65  # AUC from which on the model is called more confident
_LISTED_P = 0.1  # a cluster of rulers, 40 of 43, had 0.07; looking at one cluster too many costs little
_FAR = 2.5  # times the separation by chance: natural clusters of the embedded lesions reached 2.2
_DISTINCT_Z = 3.5  # standard errors: about 1 in 200 for the largest of a dozen properties
_MAX_CENTRAL = 6


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster of images within one class."""

    label: int
    rows: tuple[int, ...]  # of the images
    centre: tuple[int, ...]  # rows of the most central images
    anomaly: float  # 0 to 1; clusters are ranked by it
    separation: float  # Mahalanobis distance from the rest of the class
    chance: float  # 95 % quantile of the separation without clusters
    p: float  # of that separation without clusters; corrected for the number of classes
    confidence: float  # AUC of the model's log-odds against the rest of the class
    distinct: str | None  # the most distinctive image property, if any
    distinct_auc: float | None
    level: Level
    sentence: str

    @property
    def size(self) -> int:
        """The number of images."""
        return len(self.rows)


def reduce_features(features: npt.NDArray[np.floating]) -> FloatArray:
    """Return standardised features on their principal axes: (n, at most 20).

    Outliers are clipped: a few images at the end of a long tail are no cluster.
    """
    values = np.asarray(features, dtype=np.float64)
    centred = values - values.mean(axis=0)
    spread = centred.std(axis=0)
    moves = spread > _CONSTANT * max(float(spread.max(initial=0)), np.finfo(np.float64).tiny)
    if not moves.any():
        return np.zeros((len(values), 1))
    near = np.clip(centred[:, moves] / spread[moves], -_CLIP, _CLIP)
    left, size, _ = np.linalg.svd(near - near.mean(axis=0), full_matrices=False)
    return np.asarray(left[:, :_MAX_AXES] * size[:_MAX_AXES])


def group_points(points: FloatArray, *, seed: int) -> list[BoolArray]:
    """Return all clusters of spectral clusterings into 2 to 8, as boolean masks.

    The eigengap, by which SpRAy chooses the number, splits small classes too often: an artifact in half of a class came
    out as two clusters. So all are candidates, and their separation decides.
    """
    vectors = _spectral_embedding(points, seed=seed)
    least = max(MIN_CLUSTER, int(np.ceil(_MIN_SHARE * len(points))))
    groups: dict[bytes, BoolArray] = {}
    for count in range(2, min(_MAX_CLUSTERS, vectors.shape[1]) + 1):
        cluster = _assign(vectors[:, :count])
        for number in range(count):
            inside = np.asarray(cluster == number)
            if least <= inside.sum() <= len(points) - least:
                groups.setdefault(inside.tobytes(), inside)
    return list(groups.values())


def _spectral_embedding(points: FloatArray, *, seed: int) -> FloatArray:
    """Return the eigenvectors of the nearest-neighbour graph's normalised Laplacian, the smallest eigenvalue first."""
    from sklearn.neighbors import kneighbors_graph

    neighbours = int(np.clip(round(1.5 * np.log(len(points))), 4, 15))
    directed = kneighbors_graph(points, neighbours, mode="connectivity", include_self=False)
    graph = csr_matrix(directed.maximum(directed.T))
    scale = diags(1 / np.sqrt(np.asarray(graph.sum(axis=1)).ravel()))
    start = np.random.default_rng(seed).normal(size=len(points))
    values, vectors = eigsh(scale @ graph @ scale, k=_MAX_CLUSTERS, which="LA", v0=start)
    return np.asarray(vectors[:, np.argsort(-values)])


def _assign(vectors: FloatArray) -> IntArray:
    """Return the cluster of each row by pivoted QR (Damle et al. 2019), which needs no initialisation."""
    _, _, pivots = qr(vectors.T, mode="economic", pivoting=True)
    left, _, right = np.linalg.svd(vectors[pivots[: vectors.shape[1]]].T)
    return np.asarray(np.abs(vectors @ (left @ right)).argmax(axis=1), dtype=np.int64)


@dataclass(frozen=True)
class Null:
    """Distribution of the largest separation without clusters: log-normal."""

    mean: float
    spread: float

    def p_value(self, separation: float) -> float:
        """Return the probability of at least this separation without clusters."""
        return float(norm.sf(math.log(max(separation, 1e-12)), self.mean, max(self.spread, 1e-12)))

    @property
    def limit(self) -> float:
        """The 95 % quantile."""
        return math.exp(self.mean + 1.645 * self.spread)


def separation_of(points: FloatArray, inside: BoolArray) -> float:
    """Return the Mahalanobis distance between a cluster and the rest, by their pooled covariance."""
    one, other = points[inside], points[~inside]
    step = one.mean(axis=0) - other.mean(axis=0)
    within = np.concatenate([one - one.mean(axis=0), other - other.mean(axis=0)])
    covariance = within.T @ within / max(len(points) - 2, 1)
    covariance += (_RIDGE * np.trace(covariance) / len(step) + np.finfo(np.float64).tiny) * np.eye(len(step))
    return float(np.sqrt(step @ np.linalg.solve(covariance, step)))


def simulate_null(points: FloatArray, *, seed: int) -> Null:
    """Cluster simulated samples without clusters, with the covariance and tails of these points (as in SigClust).

    Points are on their principal axes, so the covariance is diagonal. A sample has the distances from the centre of the
    class, resampled, in random directions.
    """
    spreads, count = points.std(axis=0), min(len(points), _MAX_NULL_POINTS)
    moves = spreads > 0
    distances = np.linalg.norm(points[:, moves] / spreads[moves], axis=1)
    largest = []
    for sample in range(_NULL_SAMPLES):
        rng = np.random.default_rng((seed, sample))
        directions = rng.normal(size=(count, len(spreads)))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        drawn = directions * rng.choice(distances, (count, 1)) * spreads
        groups = group_points(drawn, seed=seed)
        largest.append(max((separation_of(drawn, inside) for inside in groups), default=1.0))
    logs = np.log(largest)
    return Null(float(logs.mean()), float(logs.std(ddof=1)))


def choose_groups(points: FloatArray, groups: Sequence[BoolArray], confidence: FloatArray) -> list[BoolArray]:
    """Return clusters that do not overlap, the best separated first; the side of a border by the class's log-odds."""
    apart = sorted(((separation_of(points, inside), number) for number, inside in enumerate(groups)), reverse=True)
    taken = np.zeros(len(points), dtype=bool)
    chosen = []
    for _, number in apart:
        inside = _side(groups[number], confidence)
        if (inside & taken).sum() <= _MAX_OVERLAP * inside.sum():
            chosen.append(inside & ~taken)
            taken |= inside
    return chosen


def _side(inside: BoolArray, confidence: FloatArray) -> BoolArray:
    """Return the side of a border that is the cluster: the smaller, or the one with more confident predictions."""
    smaller, larger = (inside, ~inside) if 2 * inside.sum() <= len(inside) else (~inside, inside)
    is_more_confident = larger.mean() <= _MAX_SHARE and area_under(confidence, larger).value >= CONFIDENT
    return larger if is_more_confident else smaller


def find_clusters(
    points: FloatArray,
    rows: IntArray,
    confidence: FloatArray,
    *,
    measured: Measurements,
    label: int,
    class_name: str,
    tests: int,
    seed: int,
) -> list[Cluster]:
    """Return the clusters of one class, one for each distinctive property.

    Args:
        points: Reduced features of the images ``rows`` of the class; ``confidence`` is its log-odds for them.
        tests: Number of classes, for the correction of p-values.
    """
    null = simulate_null(points, seed=seed)

    def describe(inside: BoolArray) -> Cluster:
        separation = separation_of(points, inside)
        p = min(1.0, tests * null.p_value(separation))
        more_confident = area_under(confidence, inside).value
        name, auc = _distinct(measured, rows, inside)
        # Beside the separation: at most half of the class, confident predictions, a distinctive property.
        signs = [min(1.0, 2 - 2 * float(inside.mean())), max(0.0, 2 * more_confident - 1)]
        signs.append(0.0 if auc is None else abs(2 * auc - 1))
        apart, level = 0.0, LEVELS[-1]
        if p <= _LISTED_P:
            apart = max(0.0, 1 - null.limit / separation)
            level = "clear" if separation / null.limit >= _FAR and p <= SIGNIFICANT else "weak"
        distance = np.linalg.norm(points - points[inside].mean(axis=0), axis=1)
        nearest = np.argsort(np.where(inside, distance, np.inf), kind="stable")[: min(_MAX_CENTRAL, inside.sum())]
        cluster = Cluster(
            label=label,
            rows=tuple(rows[inside].tolist()),
            centre=tuple(rows[nearest].tolist()),
            anomaly=apart * float(np.mean(signs)),
            separation=separation,
            chance=null.limit,
            p=p,
            confidence=more_confident,
            distinct=name,
            distinct_auc=auc,
            level=level,
            sentence="",
        )
        return replace(cluster, sentence=_sentence(cluster, class_name, len(rows)))

    found = [describe(inside) for inside in choose_groups(points, group_points(points, seed=seed), confidence)]
    return _fold(found, lambda members: describe(np.isin(rows, members)))


def _fold(found: list[Cluster], describe: Callable[[tuple[int, ...]], Cluster]) -> list[Cluster]:
    """Return one cluster per distinctive property.

    Two bright clusters are merged, if the result is as separate. Of a bright and a dark one the more anomalous stays:
    both mean that the class varies in brightness.
    """
    folded: list[Cluster] = []
    for cluster in sorted(found, key=by_anomaly):
        like = [place for place, other in enumerate(folded) if other.distinct == cluster.distinct is not None]
        if not like:
            folded.append(cluster)
        elif _is_same(folded[like[0]], cluster):
            both = describe(folded[like[0]].rows + cluster.rows)
            if _is_same(both, cluster):
                folded[like[0]] = both
    return folded


def _is_same(one: Cluster, other: Cluster) -> bool:
    """Return whether two clusters are separate and differ from the class in the same property and direction."""
    if one.distinct_auc is None or other.distinct_auc is None or "none" in (one.level, other.level):
        return False
    return one.distinct == other.distinct and (one.distinct_auc > 0.5) == (other.distinct_auc > 0.5)


def by_anomaly(cluster: Cluster) -> tuple[int, float, float]:
    """Return the sort key of clusters."""
    return LEVELS.index(cluster.level), -cluster.anomaly, -cluster.separation / cluster.chance


def _distinct(measured: Measurements, rows: IntArray, inside: BoolArray) -> tuple[str | None, float | None]:
    """Return the property that separates the cluster best from the rest of its class, if significant."""
    compared = compare_groups(rank_columns(measured.values[rows]), inside.astype(np.int64), 2)
    best = int(np.argmax(np.abs(compared.z[1])))
    if abs(compared.z[1, best]) < _DISTINCT_Z:
        return None, None
    return measured.names[best], float(compared.auc[1, best])


def _sentence(cluster: Cluster, class_name: str, count: int) -> str:
    many, p = f"{cluster.size} of the {count} images of class {class_name!r}", format_p(cluster.p)
    if cluster.level == "none":
        return f"{many} form a cluster, but no more separate than by chance ({p})."
    ratio = f"{cluster.separation / cluster.chance:.1f} times the 95 % quantile by chance"
    parts = [f"{many} are clearly separated from the others: {ratio} ({p})."]
    if cluster.level == "weak":
        parts = [f"{many} are {'perhaps ' * (cluster.p > SIGNIFICANT)}weakly separated from the others ({p})."]
    if cluster.confidence >= CONFIDENT:
        parts.append(f"The model is more confident in them: AUC {cluster.confidence:.2f}.")
    elif cluster.confidence <= 1 - CONFIDENT:
        parts.append(f"The model is less confident in them: AUC {1 - cluster.confidence:.2f}.")
    if cluster.distinct is not None and cluster.distinct_auc is not None:
        auc = cluster.distinct_auc
        parts.append(f"They are {WORDS[cluster.distinct][auc < 0.5]}: AUC {max(auc, 1 - auc):.2f}.")
    return " ".join(parts)
