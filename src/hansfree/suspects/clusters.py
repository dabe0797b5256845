"""The images of one class: groups that stand apart, and how odd each is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hansfree.metrics.auroc import area_under
from hansfree.suspects.findings import LEVELS, Cluster, Level
from hansfree.suspects.measures import WORDS, Measurements
from hansfree.suspects.properties import written_p
from hansfree.suspects.ranks import compare_groups, rank_columns
from hansfree.suspects.separation import SURE, choose_groups, imagine_null, separation_of
from hansfree.suspects.spectral import BoolArray, FloatArray, IntArray, group_points

LEAST_IMAGES = 30  # of a class: fewer have no groups that could be told from chance
_SIGNIFICANT = 0.05
_LISTED = 0.1  # a cluster of rulers, 40 of 43, had 0.07: a person who looks at the images loses little by one too many
_FAR = 2.5  # times the separation of chance: natural groups of the embedded lesions reached 2.2
_DISTINCT = 3.5  # standard errors: about 1 in 200 for the largest of a dozen properties
_MOST_CENTRAL = 6


def find_clusters(
    points: FloatArray,
    rows: IntArray,
    surety: FloatArray,
    *,
    measured: Measurements | None,
    label: int,
    class_name: str,
    tests: int,
    seed: int,
) -> list[Cluster]:
    """Return the groups of one class that do not overlap, one for each property that sets them apart.

    Args:
        points: the reduced features of the class's images; ``rows`` are those images.
        surety: the log-odds that the model gives the class, of the same images.
        tests: how many classes are looked at: what p-values are multiplied by.
    """
    null = imagine_null(points, seed=seed)

    def describe(inside: BoolArray) -> Cluster:
        separation = separation_of(points, inside)
        p = min(1.0, tests * null.p_value(separation))
        sure, _ = area_under(surety, inside)
        name, auc = _distinct(measured, rows, inside)
        apart = max(0.0, 1 - null.limit / separation) if p <= _LISTED else 0.0
        # Far and compact are both in the separation; no more than half of the class, surely answered, and with a
        # property of its own:
        signs = [min(1.0, 2 - 2 * float(inside.mean())), max(0.0, 2 * sure - 1)]
        signs += [] if measured is None else [0.0 if auc is None else abs(2 * auc - 1)]
        cluster = Cluster(
            label=label,
            rows=tuple(rows[inside].tolist()),
            centre=tuple(rows[_central(points, inside)].tolist()),
            oddness=apart * float(np.mean(signs)),
            separation=separation,
            chance=null.limit,
            p=p,
            surety=sure,
            distinct=name,
            distinct_auc=auc,
            level=_level(separation / null.limit, p),
            sentence="",
        )
        return replace(cluster, sentence=_sentence(cluster, class_name, len(rows)))

    found = [describe(inside) for inside in choose_groups(points, group_points(points, seed=seed), surety)]
    return _fold(found, lambda members: describe(np.isin(rows, members)))


def _fold(found: list[Cluster], describe: Callable[[tuple[int, ...]], Cluster]) -> list[Cluster]:
    """Return one cluster for each property that sets clusters apart.

    Two bright ones are one, if it stands apart as they do. Of a bright and a dark one the odder stays: both say that
    the class varies in brightness.
    """
    kept: list[Cluster] = []
    for cluster in sorted(found, key=oddest_first):
        like = [place for place, other in enumerate(kept) if other.distinct == cluster.distinct is not None]
        if not like:
            kept.append(cluster)
        elif _is_same(kept[like[0]], cluster):
            both = describe(kept[like[0]].rows + cluster.rows)
            if _is_same(both, cluster):
                kept[like[0]] = both
    return kept


def _is_same(one: Cluster, other: Cluster) -> bool:
    """Tell whether two clusters stand apart, with more, or both with less, of the same property."""
    if one.distinct_auc is None or other.distinct_auc is None or "none" in (one.level, other.level):
        return False
    return one.distinct == other.distinct and (one.distinct_auc > 0.5) == (other.distinct_auc > 0.5)


def oddest_first(cluster: Cluster) -> tuple[int, float, float]:
    """Return what clusters are sorted by."""
    return LEVELS.index(cluster.level), -cluster.oddness, -cluster.separation / cluster.chance


def _level(ratio: float, p: float) -> Level:
    if p > _LISTED:
        return "none"
    return "clear" if ratio >= _FAR and p <= _SIGNIFICANT else "weak"


def _distinct(measured: Measurements | None, rows: IntArray, inside: BoolArray) -> tuple[str | None, float | None]:
    """Return the property that tells the group from the rest of its class best, if chance does not explain it."""
    if measured is None:
        return None, None
    compared = compare_groups(rank_columns(measured.values[rows]), inside.astype(np.int64), 2)
    best = int(np.argmax(np.abs(compared.z[1])))
    if abs(compared.z[1, best]) < _DISTINCT:
        return None, None
    return measured.names[best], float(compared.auc[1, best])


def _central(points: FloatArray, inside: BoolArray) -> IntArray:
    members = np.flatnonzero(inside)
    distance = np.linalg.norm(points[members] - points[members].mean(axis=0), axis=1)
    return np.asarray(members[np.argsort(distance, kind="stable")[:_MOST_CENTRAL]])


def _sentence(cluster: Cluster, class_name: str, count: int) -> str:
    many = f"{cluster.size} of the {count} images of class {class_name!r}"
    if cluster.level == "none":
        return f"{many} lie together, no further from the others than chance puts them ({written_p(cluster.p)})."
    how = "a little" if cluster.p <= _SIGNIFICANT else "perhaps a little"
    parts = [f"{many} stand {how} apart from the others ({written_p(cluster.p)})."]
    if cluster.level == "clear":
        ratio = cluster.separation / cluster.chance
        parts = [
            f"{many} stand far apart from the others: {ratio:.1f} times as far as chance takes one class in twenty "
            f"({written_p(cluster.p)})."
        ]
    if cluster.surety >= SURE:
        parts.append(f"The model is surer of them: AUC {cluster.surety:.2f}.")
    elif cluster.surety <= 1 - SURE:
        parts.append(f"The model is less sure of them: AUC {1 - cluster.surety:.2f}.")
    if cluster.distinct is not None and cluster.distinct_auc is not None:
        auc = cluster.distinct_auc
        parts.append(f"They are {WORDS[cluster.distinct][auc < 0.5]}: AUC {max(auc, 1 - auc):.2f}.")
    return " ".join(parts)
