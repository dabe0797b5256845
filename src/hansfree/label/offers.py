"""Suspected clusters as the page offers them: what `hansfree suspects` left beside the marks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hansfree.errors import DataError
from hansfree.suspects import Cluster, Suspects
from hansfree.suspects.measures import WORDS

_SHOWN = 6


@dataclass(frozen=True)
class Offer:
    """A cluster that may be taken as marks, and what a person should see of it before."""

    images: tuple[int, ...]
    centre: tuple[int, ...]  # those that show best what it is
    title: str  # the class and the property that sets the cluster apart
    sentence: str


def read_offers(folder: Path, index_of: Mapping[str, int], *, classes: Sequence[str]) -> dict[str, Offer]:
    """Return the clusters by name, those with the lowest rank first.

    Args:
        index_of: The number of an image by its name.
        classes: The name of each image's class.
    """
    told = _read_told(folder / "suspects.json")
    found: dict[str, Offer] = {}
    for path in sorted(folder.glob("suspect-*.json"), key=lambda path: (len(path.name), path.name)):  # 10 after 9
        try:
            listed = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read: {error}.") from error
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            raise DataError(f"{path} is not a list of images.")
        if any(name in index_of for name in listed):
            found[path.stem] = _describe(listed, index_of, classes, told.get(path.stem))
    return found


def _describe(
    listed: Sequence[str], index_of: Mapping[str, int], classes: Sequence[str], cluster: Cluster | None
) -> Offer:
    known = sorted({index_of[name] for name in listed if name in index_of})
    title, sentence, centre = classes[known[0]], "", known[:_SHOWN]
    if cluster is not None and cluster.size == len(listed):
        sentence = cluster.sentence
        # By name: the images may have another order now than when they were looked at.
        name_of = dict(zip(cluster.rows, listed))
        centre = [index_of[name_of[row]] for row in cluster.centre if name_of[row] in index_of]
        if cluster.distinct is not None and cluster.distinct_auc is not None:
            title += f", {WORDS[cluster.distinct][cluster.distinct_auc < 0.5]}"
    return Offer(tuple(known), tuple(centre), title, sentence)


def _read_told(path: Path) -> dict[str, Cluster]:
    """Return what was said of the clusters; nothing, where somebody wrote the lists without it."""
    if not path.exists():
        return {}
    clusters = Suspects.from_json(path.read_text(encoding="utf-8")).clusters
    return {f"suspect-{rank}": cluster for rank, cluster in enumerate(clusters, start=1)}
