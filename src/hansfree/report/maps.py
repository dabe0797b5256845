"""Where the models look, and what the direction sees: the same images under every method, on one colour scale."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hansfree.report.heatmap_set import HeatmapSet
from hansfree.report.pictures import heatmap_of, picture_of
from hansfree.report.reading import Results, method_title
from hansfree.results import ORIGINAL

_MOST_IMAGES = 6  # more do not tell more
_SCALE_PERCENTILE = 99.0  # of |relevance|: one hot pixel must not bleach all others
INPUT, DIRECTION = "input", "direction"


@dataclass(frozen=True)
class Cell:
    """One image or heatmap: its method (or what it is instead), its words, and its data; none if not finite."""

    method: str
    title: str
    alt: str
    source: str


@dataclass(frozen=True)
class Maps:
    """Heatmaps as the page shows them: a row of cells per image, and who can be chosen beside the original."""

    rows: tuple[tuple[Cell, ...], ...]
    caption: str
    choices: tuple[tuple[str, str], ...] = ()  # method, title
    shown: str = ""


def show_heatmaps(results: Results, shown: str) -> Maps | None:
    """Return the heatmaps of every method; ``shown`` is the method beside the original at first."""
    maps = results.heatmaps
    if maps is None or not maps.relevance or len(maps.images) == 0:
        return None
    known = [variant.method for variant in results.methods()]  # in the order of the table
    methods = sorted(maps.relevance, key=lambda method: known.index(method) if method in known else len(known))
    choices = tuple((method, method_title(method)) for method in methods if method != ORIGINAL)
    first = shown if shown in dict(choices) else next(iter(dict(choices)), "")
    kind = _kind(results)
    return Maps(
        _rows(results, maps, {method: (method_title(method), maps.relevance[method]) for method in methods}),
        f"{kind}: red pixels speak for {_explained(results)}, blue ones against it, whatever the model answers. Under "
        "each image: which it is, and its true class. The same images and one colour scale for all methods"
        f"{_outlined(maps)}.",
        choices,
        first,
    )


def show_direction(results: Results) -> Maps | None:
    """Return where in the images the score along the CAV comes from."""
    maps = results.heatmaps
    if maps is None or maps.direction is None or len(maps.images) == 0:
        return None
    # an artifact that fills the image is everywhere
    expected = "" if maps.masks.all() else " It should look at the artifact, and at little else."
    return Maps(
        _rows(results, maps, {DIRECTION: ("Direction", maps.direction)}),
        "What the direction sees in test images that carry the artifact: red pixels add to the score along it, blue "
        f"ones take away{_outlined(maps)}.{expected}",
    )


def _rows(results: Results, maps: HeatmapSet, kinds: dict[str, tuple[str, np.ndarray]]) -> tuple[tuple[Cell, ...], ...]:
    limit = common_limit(relevance for _, relevance in kinds.values())
    rows = []
    for number, (image, mask) in enumerate(zip(maps.images[:_MOST_IMAGES], maps.masks)):
        which = _name(results, maps, number)
        cells = [Cell(INPUT, which, f"{which}, with the artifact", picture_of(image))]
        for name, (title, relevance) in kinds.items():
            found = relevance[number]
            source = heatmap_of(found, mask, limit=limit) if np.isfinite(found).all() else ""
            cells.append(Cell(name, title, f"Heatmap of {which}, {title}", source))
        rows.append(tuple(cells))
    return tuple(rows)


def _name(results: Results, maps: HeatmapSet, number: int) -> str:
    """Say which image it is, as its owner calls it where that is known, and of which class."""
    which = f"test image {number + 1}"
    if maps.ids is not None:
        id_ = str(maps.ids[number])
        which = (results.meta.get("image_names") or {}).get(id_, f"test image, id {id_}")
    return which if maps.labels is None else f"{which}: {results.class_title(int(maps.labels[number]))}"


def _explained(results: Results) -> str:
    """Name the class that the heatmaps explain: the biased one, always."""
    biased = results.meta.get("biased_class")
    return f"“{results.class_title(biased)}”" if isinstance(biased, int) else "the explained class"


def common_limit(relevances: Iterable[np.ndarray]) -> float:
    """Return one symmetric end of the colour scale for all of these heatmaps, so that colours can be compared."""
    sizes = np.abs(np.concatenate([np.zeros(0), *(relevance.ravel() for relevance in relevances)]).astype(np.float64))
    sizes = sizes[np.isfinite(sizes)]
    return float(np.percentile(sizes, _SCALE_PERCENTILE)) or 1.0 if sizes.size else 1.0


def _kind(results: Results) -> str:
    """Return what the heatmaps are called; LRP has no rules for some models."""
    told = str(results.meta.get("explanation") or "lrp")
    return "LRP (epsilon, z+, flat)" if told.lower() == "lrp" else told.capitalize()


def _outlined(maps: HeatmapSet) -> str:
    """Promise the outline where it is drawn: where the artifact is, is not always known."""
    masks = maps.masks[:_MOST_IMAGES]
    is_drawn = bool((masks.any(axis=(1, 2)) & ~masks.all(axis=(1, 2))).any())
    return "; the green outline is the artifact" if is_drawn else ""
