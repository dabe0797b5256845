"""Spectral clustering as in SpRAy (Lapuschkin et al. 2019): groups of neighbours among the images of a class."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.linalg import qr
from scipy.sparse import csr_matrix, diags
from scipy.sparse.linalg import eigsh

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

LEAST_GROUP = 5  # images: fewer are outliers, not a group
_LEAST_SHARE = 0.01  # of the class
_MOST_GROUPS = 8
_MOST_AXES = 20  # principal ones that are kept: what lies beyond is noise that blurs the neighbours
_STILL = 1e-9  # spread of a channel, relative to the largest, below which it tells nothing
_FAR = 2.5  # spreads


def reduce_features(features: npt.NDArray[np.floating]) -> FloatArray:
    """Return the features centred, each channel at unit spread, on their principal axes: (n, at most 20).

    Values far out are drawn in: a few images at the end of a long tail are no group.
    """
    values = np.asarray(features, dtype=np.float64)
    centred = values - values.mean(axis=0)
    spread = centred.std(axis=0)
    moves = spread > _STILL * max(float(spread.max(initial=0)), np.finfo(np.float64).tiny)
    if not moves.any():
        return np.zeros((len(values), 1))
    near = np.clip(centred[:, moves] / spread[moves], -_FAR, _FAR)
    left, size, _ = np.linalg.svd(near - near.mean(axis=0), full_matrices=False)
    return np.asarray(left[:, :_MOST_AXES] * size[:_MOST_AXES])


def group_points(points: FloatArray, *, seed: int) -> list[BoolArray]:
    """Return every group of every division into 2 to 8, as one truth value per point.

    The eigengap, by which SpRAy takes one division, splits small classes too often: an artifact in half of a class came
    out as two groups. So all divisions are offered, and how far a group stands apart decides
    (`hansfree.suspects.separation`).
    """
    vectors = _smoothest(_neighbour_graph(points), seed=seed)
    least = max(LEAST_GROUP, int(np.ceil(_LEAST_SHARE * len(points))))
    groups: dict[bytes, BoolArray] = {}
    for count in range(2, min(_MOST_GROUPS, vectors.shape[1]) + 1):
        number = _assign(vectors[:, :count])
        for each in range(count):
            inside = np.asarray(number == each)
            if least <= inside.sum() <= len(points) - least:
                groups.setdefault(inside.tobytes(), inside)
    return list(groups.values())


def _assign(vectors: FloatArray) -> IntArray:
    """Return the group of each row by pivoted QR (Damle et al. 2019): nothing to start from, unlike k-means.

    The pivots are the rows that point most apart; the vectors are turned until those are the axes.
    """
    _, _, pivots = qr(vectors.T, mode="economic", pivoting=True)
    left, _, right = np.linalg.svd(vectors[pivots[: vectors.shape[1]]].T)
    return np.asarray(np.abs(vectors @ (left @ right)).argmax(axis=1), dtype=np.int64)


def _neighbour_graph(points: FloatArray) -> csr_matrix:
    """Join each point with its nearest ones; that one of two joins the other is enough."""
    from sklearn.neighbors import kneighbors_graph

    neighbours = int(np.clip(round(1.5 * np.log(len(points))), 4, 15))
    joined = kneighbors_graph(points, neighbours, mode="connectivity", include_self=False)
    return csr_matrix(joined.maximum(joined.T))


def _smoothest(graph: csr_matrix, *, seed: int) -> FloatArray:
    """Return the eigenvectors of the normalised Laplacian's smallest eigenvalues, those first."""
    scale = diags(1 / np.sqrt(np.asarray(graph.sum(axis=1)).ravel()))
    start = np.random.default_rng(seed).normal(size=graph.shape[0])
    values, vectors = eigsh(scale @ graph @ scale, k=_MOST_GROUPS, which="LA", v0=start)
    return np.asarray(vectors[:, np.argsort(-values)])
