"""Images of the report: heatmaps, best and worst cases, suspect labels."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from PIL import Image
from scipy.ndimage import binary_erosion

from hansfree._internal.files import read_arrays
from hansfree.cavs.diagnostics import Diagnosis
from hansfree.data import to_rgb
from hansfree.evaluation import ORIGINAL, HeatmapSet, Results, method_title
from hansfree.pipeline import EXTREMES, NOTABLE
from hansfree.report.figures import GREEN
from hansfree.report.numbers import percent

_MOST_SIDE = 128  # pixels: the page shows them at about this size, and holds many
_LAST = 254  # place of the colour scale's upper end in the palette; the green of the outline has the next one
_COLOURS = colormaps["RdBu_r"](np.linspace(0, 1, _LAST + 1))[:, :3]
_PALETTE = [*np.round(255 * _COLOURS).astype(int).ravel().tolist(), *bytes.fromhex(GREEN[1:])]


def picture_of(image: np.ndarray) -> str:
    """Return an image, uint8 (height, width, 1 or 3), as a data address."""
    picture = Image.fromarray(to_rgb(image))
    return _address(_shrunk(picture, Image.Resampling.BOX), "JPEG", quality=75)


def heatmap_of(relevance: np.ndarray, mask: np.ndarray, *, limit: float) -> str:
    """Return a heatmap as a data address: red speaks for, blue against; ``limit`` is the end of the colour scale."""
    small = np.asarray(_shrunk(Image.fromarray(relevance.astype(np.float32)), Image.Resampling.BOX))
    shares = np.clip((small / limit + 1) / 2, 0, 1)
    places = np.round(_LAST * shares).astype(np.uint8)
    places[_outline(mask)] = _LAST + 1
    picture = Image.fromarray(places)
    picture.putpalette(_PALETTE)
    return _address(picture, "PNG", optimize=True)


def data_address(content: bytes, kind: str) -> str:
    """Return a file of an image as an address that holds it; ``kind`` is its format, such as PNG."""
    return f"data:image/{kind.lower()};base64,{base64.b64encode(content).decode('ascii')}"


def _outline(mask: np.ndarray) -> np.ndarray:
    """Return the rim of the artifact; one that fills the image has none."""
    mask = np.asarray(_shrunk(Image.fromarray(mask), Image.Resampling.NEAREST))
    rim: np.ndarray = mask & ~binary_erosion(mask)
    return np.zeros_like(mask) if mask.all() else rim


def _shrunk(picture: Image.Image, resampling: Image.Resampling) -> Image.Image:
    picture.thumbnail((_MOST_SIDE, _MOST_SIDE), resampling)  # never larger than it is
    return picture


def _address(picture: Image.Image, kind: str, **options: object) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, format=kind, **options)
    return data_address(buffer.getvalue(), kind)


_MOST_IMAGES = 6
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
    legend: str = ""  # the caption in one sentence


def show_heatmaps(results: Results, shown: str) -> Maps | None:
    """Return the heatmaps of every method; ``shown`` is the method beside the original at first."""
    maps = results.heatmaps
    if maps is None or not maps.relevance or len(maps.images) == 0:
        return None
    known = [variant.method for variant in results.methods()]  # in the order of the table
    methods = sorted(maps.relevance, key=lambda method: known.index(method) if method in known else len(known))
    choices = tuple((method, method_title(method)) for method in methods if method != ORIGINAL)
    first = shown if shown in dict(choices) else next(iter(dict(choices)), "")
    kind, biased = str(results.meta.get("explanation") or "lrp"), results.meta.get("biased_class")
    is_lrp = kind.lower() == "lrp"
    kind = "LRP (epsilon, z+, flat)" if is_lrp else kind.capitalize()
    why = "" if is_lrp else " LRP has no rule for some operations of this network."
    explained = f"“{results.class_title(biased)}”" if isinstance(biased, int) else "the explained class"
    return Maps(
        _rows(results, maps, {method: (method_title(method), maps.relevance[method]) for method in methods}),
        f"{kind}: red pixels speak for {explained}, blue ones against it, whatever the model answers. Under each "
        "image: which it is, and its true class. The same images and one colour scale for all methods"
        f"{_outlined(maps)}.{why}",
        choices,
        first,
        f"{kind}: red speaks for {explained}, blue against it{_outlined(maps)}. One colour scale.{why}",
    )


def before_after(maps: Maps | None, method: str, *, most: int) -> list[tuple[str, list[Cell]]]:
    """Return the first images, and their heatmaps before and after a method, row by row."""
    cells = [] if maps is None else [cell for row in maps.rows[:most] for cell in row]
    wanted = {INPUT: "image", ORIGINAL: "before", method: "after"}
    rows = [(words, [cell for cell in cells if cell.method == name]) for name, words in wanted.items()]
    return [row for row in rows if row[1]]


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


def common_limit(relevances: Iterable[np.ndarray]) -> float:
    """Return one symmetric end of the colour scale for all of these heatmaps, so that colours can be compared."""
    sizes = np.abs(np.concatenate([np.zeros(0), *(relevance.ravel() for relevance in relevances)]).astype(np.float64))
    sizes = sizes[np.isfinite(sizes)]
    return float(np.percentile(sizes, _SCALE_PERCENTILE)) or 1.0 if sizes.size else 1.0


def _outlined(maps: HeatmapSet) -> str:
    """Promise the outline where it is drawn: where the artifact is, is not always known."""
    masks = maps.masks[:_MOST_IMAGES]
    is_drawn = bool((masks.any(axis=(1, 2)) & ~masks.all(axis=(1, 2))).any())
    return "; the green outline is the artifact" if is_drawn else ""


@dataclass(frozen=True)
class Cases:
    """Test images with small pictures and the answers of every model."""

    labels: np.ndarray
    is_sampled: np.ndarray  # of the fixed sample; the others are extremes of some method
    pictures: dict[str, np.ndarray]  # "clean" (where the artifact is inserted), "biased"
    by_method: dict[str, dict[str, np.ndarray]]  # method -> e.g. "true_class_biased" -> per image
    counts: dict[str, tuple[int, int, int]]  # method -> test images with the artifact, better ones, worse ones

    @property
    def is_paired(self) -> bool:
        """Whether every image is known without the artifact and with it."""
        return "clean" in self.pictures

    @property
    def total(self) -> int | None:
        """How many test images carry the artifact; None if unknown."""
        return next((n for n, _, _ in self.counts.values()), None)

    def methods(self, results: Results) -> list[str]:
        """Return the methods in the order of the table; unpaired, without the original, which all are compared with."""
        known = [variant.method for variant in results.methods()]
        found = [method for method in dict.fromkeys([*known, *self.by_method]) if method in self.by_method]
        return [method for method in found if self.is_paired or method != ORIGINAL]

    def values(self, method: str, key: str) -> tuple[np.ndarray, np.ndarray]:
        """Return what a model says of the images without and with the artifact; unpaired, before and after."""
        if self.is_paired:
            return self.by_method[method][f"{key}_clean"], self.by_method[method][f"{key}_biased"]
        return self.by_method[ORIGINAL][f"{key}_biased"], self.by_method[method][f"{key}_biased"]


def load_cases(path: Path) -> Cases | None:
    """Read ``cases.npz``; None where there is none, as no test image carries the artifact."""
    if not path.is_file():
        return None
    arrays = read_arrays(path)
    by_method: dict[str, dict[str, np.ndarray]] = {}
    for key, values in arrays.items():
        kind, _, method = key.partition("/")
        if method:
            by_method.setdefault(method, {})[kind] = values
    counts = {method: found.pop("counts") for method, found in by_method.items() if "counts" in found}
    return Cases(
        labels=arrays["labels"],
        is_sampled=arrays["is_sampled"],
        pictures={key.removeprefix("pictures_"): arrays[key] for key in arrays if key.startswith("pictures_")},
        by_method=by_method,
        counts={method: (int(n), int(better), int(worse)) for method, (n, better, worse) in counts.items()},
    )


@dataclass(frozen=True)
class Case:
    """One image of a gallery, with the words below it."""

    source: str
    alt: str
    title: str
    note: str
    text: str


@dataclass(frozen=True)
class Extremes:
    """The images that a correction helped most and harmed most."""

    summary: str
    best: tuple[Case, ...]
    worst: tuple[Case, ...]


def find_extremes(results: Results, cases: Cases, shown: str) -> Extremes | None:
    """Return the largest changes of the true class's probability on images with the artifact, both ways."""
    if shown not in cases.counts:
        return None
    before, after = (cases.by_method[method]["true_class_biased"] for method in (ORIGINAL, shown))
    change = after - before
    order = np.argsort(change, kind="stable")
    worst = [int(row) for row in order[:EXTREMES] if change[row] <= -NOTABLE]
    best = [int(row) for row in order[::-1][:EXTREMES] if change[row] >= NOTABLE]
    answers = [cases.by_method[method]["predicted_biased"] for method in (ORIGINAL, shown)]

    def case(row: int) -> Case:
        truth = results.class_title(int(cases.labels[row]))
        return Case(
            picture_of(cases.pictures["biased"][row]),
            f"Test image of class {truth} with the artifact",
            truth,
            f"{percent(before[row])} → {percent(after[row])}",
            describe_change(results, *(int(each[row]) for each in answers)),
        )

    n, n_better, n_worse = cases.counts[shown]
    return Extremes(
        f"Of {n:,} test images with the artifact, the true class became more probable by a point or more in "
        f"{n_better:,} after {method_title(shown)}, and less probable in {n_worse:,}.",
        tuple(map(case, best)),
        tuple(map(case, worst)),
    )


def describe_change(results: Results, before: int, after: int) -> str:
    """Return the predicted classes before and after; a model without finite numbers predicts none (below 0)."""
    old, new = (results.class_title(answer) if answer >= 0 else "none" for answer in (before, after))
    return f"stays {new}" if before == after else f"{old} → {new}"


def show_suspect_labels(diagnosis: Diagnosis | None, path: Path) -> list[Case]:
    """Return the most suspicious images, of which the run stored pictures in ``path``."""
    if diagnosis is None or not path.is_file():
        return []
    pictures = read_arrays(path, stage=path.parent / "stages" / "diagnostics.json")["pictures"]
    cases = []
    for picture, mark in zip(pictures, diagnosis.suspect_labels):
        listed = f"listed {'with' if mark.has_artifact else 'without'} the artifact"
        cases.append(Case(picture_of(picture), f"{mark.id}, {listed}", str(mark.id), "", listed))
    return cases
