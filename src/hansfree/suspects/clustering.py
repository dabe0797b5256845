"""Image properties and spectral clusters of a class, their separation, and its null distribution."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy.linalg import qr
from scipy.sparse import csr_matrix, diags
from scipy.sparse.linalg import eigsh
from scipy.stats import rankdata

from hansfree._internal.progress import Progress, silent
from hansfree.datasets.base import ExampleSet
from hansfree.datasets.images import in_colour
from hansfree.errors import DataError, nearest
from hansfree.metrics.accuracy import area_under
from hansfree.metrics.comparison import write_p

Level = Literal["clear", "weak", "none"]

FORMAT = "hansfree.suspects.1"

LEVELS: tuple[Level, ...] = ("clear", "weak", "none")  # what is clear comes first, however odd the rest


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Images of one class that lie together, apart from the others of that class."""

    label: int
    rows: tuple[int, ...]  # of the images, as they were given
    centre: tuple[int, ...]  # the rows that show best what it is, the nearest to its centre first
    oddness: float  # 0 to 1, what clusters are ranked by
    separation: float  # from the rest of the class, in spreads within the two
    chance: float  # the separation that one class in twenty reaches without any groups
    p: float  # that a group stands so far apart in a class without groups; corrected for the number of classes
    surety: float  # AUC: how often the model is surer of one of these than of another image of the class
    distinct: str | None  # the image property that sets it apart most; None where none does
    distinct_auc: float | None
    level: Level
    sentence: str

    @property
    def size(self) -> int:
        """The number of images."""
        return len(self.rows)


@dataclass(frozen=True, kw_only=True)
class Property:
    """How a property of the images goes with a class, and with the model's errors in it."""

    name: str
    label: int
    auc: float  # how often an image of the class has more of it than one of another class
    p: float  # corrected for all properties and classes
    error_auc: float | None  # within the class: how often a wrongly answered image has more of it; None without errors
    error_p: float | None
    oddness: float  # 0 to 2, what properties are ranked by
    level: Level
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """Where the images of one class lie in two dimensions; images that are alike lie together."""

    label: int
    rows: tuple[int, ...]
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Suspects:
    """Clusters and properties, the oddest first, in plain words and in the numbers behind them."""

    class_names: tuple[str, ...]
    n: int
    seed: int
    verdict: str
    clusters: tuple[Cluster, ...]
    properties: tuple[Property, ...]
    embeddings: tuple[Embedding, ...]  # of the classes with the oddest clusters
    remarks: tuple[str, ...]

    @property
    def is_loud(self) -> bool:
        """Whether anything stands out clearly."""
        levels = [cluster.level for cluster in self.clusters] + [found.level for found in self.properties]
        return "clear" in levels

    def to_json(self) -> str:
        """Return everything as JSON text."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Suspects:
        """Rebuild what `to_json` wrote."""
        try:
            content = json.loads(text)
            if content.pop("format") != FORMAT:
                raise KeyError("format")
            content["clusters"] = [Cluster(**_tuples(found)) for found in content["clusters"]]
            content["properties"] = [Property(**found) for found in content["properties"]]
            content["embeddings"] = [Embedding(**_tuples(found)) for found in content["embeddings"]]
            return cls(**_tuples(content))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"These are no suspects in the format {FORMAT!r}, or damaged ({error!r}).") from error


def _tuples(content: dict[str, Any]) -> dict[str, Any]:
    """Return the same with tuples for JSON's lists, also for lists in them."""

    def turned(value: Any) -> Any:
        return tuple(map(turned, value)) if isinstance(value, list) else value

    return {key: turned(value) for key, value in content.items()}


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
    (`hansfree.suspects.clustering`).
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


LEAST = 5  # images on each side of a comparison

_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Comparison:
    """AUC of every property between groups of images and all others, and its size in standard errors."""

    auc: FloatArray  # (groups, properties)
    z: FloatArray


def rank_columns(values: npt.NDArray[np.floating]) -> FloatArray:
    """Return the rank of each value in its column, from 1; equals share theirs, and an unknown one is in the middle.

    So an AUC from these ranks counts half for every pair that cannot be ordered.
    """
    n = len(values)
    ranks = np.full(values.shape, (n + 1) / 2)
    for column in range(values.shape[1]):
        known = np.isfinite(values[:, column])
        ranks[known, column] = rankdata(values[known, column]) + (n - known.sum()) / 2
    return ranks


def compare_groups(ranks: FloatArray, number: IntArray, count: int) -> Comparison:
    """Compare each of ``count`` groups with the rest; one with too few images on a side has AUC 0.5 and size 0."""
    n, properties = ranks.shape
    sizes = np.bincount(number, minlength=count).astype(np.float64)
    sums = np.zeros((count, properties))
    order = np.argsort(number, kind="stable")
    filled = np.flatnonzero(sizes)
    starts = np.concatenate([[0], np.cumsum(sizes[filled])[:-1]]).astype(np.int64)
    sums[filled] = np.add.reduceat(ranks[order], starts, axis=0)
    usable = ((sizes >= LEAST) & (n - sizes >= LEAST))[:, None]
    pairs = np.where(usable, (sizes * (n - sizes))[:, None], 1.0)
    auc = (sums - (sizes * (sizes + 1))[:, None] / 2) / pairs
    # Of a random draw of these very ranks without putting back, ties and all.
    error = np.sqrt(ranks.var(axis=0) / (max(n - 1, 1) * pairs))
    moves = usable & (error > 0)
    return Comparison(np.where(moves, auc, 0.5), np.divide(auc - 0.5, error, out=np.zeros_like(auc), where=moves))


@dataclass(frozen=True, eq=False)
class Family:
    """Images, their ranks in all properties, and the number of the group that each belongs to."""

    ranks: FloatArray
    number: IntArray
    count: int

    def compare(self, number: IntArray | None = None) -> Comparison:
        """Compare the groups, or those of another numbering."""
        return compare_groups(self.ranks, self.number if number is None else number, self.count)


def compare_together(
    families: Sequence[Family], *, permutations: int, seed: int, progress: Progress = silent
) -> list[FloatArray]:
    """Return a p-value for every comparison of every family, corrected for all of them (Westfall and Young's max-T).

    The groups are dealt anew within each family; p is how often the largest of all comparisons is then as large.
    Properties that go together are not paid for twice.
    """
    largest = np.zeros(permutations)
    for deal in progress(range(permutations), total=permutations, label="dealing labels anew"):
        rng = np.random.default_rng((seed, deal))
        sizes = [np.abs(family.compare(rng.permutation(family.number)).z).max() for family in families]
        largest[deal] = max(sizes)
    ordered = np.sort(largest)
    found = []
    for family in families:
        reached = permutations - np.searchsorted(ordered, np.abs(family.compare().z) - _ROUNDING, side="left")
        found.append((1 + reached) / (1 + permutations))  # the labels as they are count as one deal
    return found


Words = tuple[str, str]  # images with more of a property "are ...", and those with less


_CORNER, _FRAME = 8, 16  # parts of a side: how far a corner and the border reach in

_LEAST_SIDE = 3

_FLAT = 1e-6  # variance of an image without contrast

_LEAST_ROOM = 8.0  # of 255: nearer to black or white, what is left is noise

_WHITE, _BLACK = 250, 5  # of 255

_LUMA = np.array([0.299, 0.587, 0.114])

_QUALITY_50 = 57.625  # mean of the standard luminance table, which quality 50 stands for


PIXEL_WORDS: dict[str, Words] = {
    "brightness": ("brighter", "darker"),
    "contrast": ("richer in contrast", "poorer in contrast"),
    "saturation": ("more colourful", "greyer"),
    "red cast": ("redder", "less red"),
    "blue cast": ("bluer", "less blue"),
    "sharpness": ("sharper", "more blurred"),
    "corner brightness": ("lighter in the corners", "darker in the corners"),
    "border brightness": ("lighter at the border", "darker at the border"),
    "corner detail": ("busier in a corner", "quieter in the corners"),
    "corner colour": ("more colourful in a corner", "greyer in the corners"),
    "white share": ("richer in white", "poorer in white"),
    "black share": ("richer in black", "poorer in black"),
}

FILE_WORDS: dict[str, Words] = {
    "width": ("wider", "narrower"),
    "height": ("taller", "less tall"),
    "aspect": ("wider for their height", "taller for their width"),
    "bytes per pixel": ("less compressed", "more compressed"),
    "jpeg quality": ("of higher JPEG quality", "of lower JPEG quality"),
}

WORDS = {**PIXEL_WORDS, **FILE_WORDS}


@dataclass(frozen=True, eq=False)
class Measurements:
    """A table of properties, one row per image; NaN where an image does not have one."""

    names: tuple[str, ...]
    values: npt.NDArray[np.float64]  # (images, properties)

    def __post_init__(self) -> None:
        """Refuse a table that does not have a column per name, or names that have no words."""
        if self.values.ndim != 2 or self.values.shape[1] != len(self.names):
            raise DataError(f"{len(self.names)} properties need as many columns, not {self.values.shape}.")
        for name in self.names:
            if name not in WORDS:
                raise DataError(f"There is no property {name!r}.{nearest(name, WORDS)} Known: {', '.join(WORDS)}.")

    def __len__(self) -> int:
        return len(self.values)


def measure_images(
    images: ExampleSet, *, paths: Sequence[str] | None = None, progress: Progress = silent
) -> Measurements:
    """Measure every image as the model sees it, and its file as it lies on disk.

    Args:
        paths: of the original files, one per image; None where the images never were files.
    """
    if paths is not None and len(paths) != len(images):
        raise DataError(f"{len(images)} images need as many paths, not {len(paths)}.")
    names = (*PIXEL_WORDS, *(FILE_WORDS if paths is not None else ()))
    values = np.empty((len(images), len(names)))
    for row in progress(range(len(images)), total=len(images), label="measuring images"):
        found = measure_pixels(images.pixels(row)[0])
        if paths is not None:
            found |= measure_file(paths[row])
        values[row] = [found[name] for name in names]
    return Measurements(names, values)


def measure_pixels(image: npt.NDArray[np.uint8]) -> dict[str, float]:
    """Return the properties of one uint8 image (height, width, 1 or 3), of 3 x 3 pixels or more.

    Contrast, colours and corners are shares of the room that the brightness leaves up to white or down to black. A
    brighter exposure takes the same part of all of them away; measured as they are, they would all seem odd, and often
    odder than the brightness.
    """
    if image.ndim != 3 or min(image.shape[:2]) < _LEAST_SIDE:
        raise DataError(f"Properties need images of {_LEAST_SIDE} x {_LEAST_SIDE} pixels or more, not {image.shape}.")
    colours = in_colour(image)
    values = colours.astype(np.float64)
    light = values @ _LUMA
    room = max(min(light.mean(), 255 - light.mean()), _LEAST_ROOM)
    red, green, blue = values.mean(axis=(0, 1))
    chroma = values.max(axis=2) - values.min(axis=2)
    frame = _frame(light.shape)
    curvature = 4 * light[1:-1, 1:-1] - light[:-2, 1:-1] - light[2:, 1:-1] - light[1:-1, :-2] - light[1:-1, 2:]
    return {
        "brightness": float(light.mean()),
        "contrast": float(light.std() / room),
        "saturation": float(chroma.mean() / room),
        "red cast": float((red - (green + blue) / 2) / room),
        "blue cast": float((blue - (red + green) / 2) / room),
        # Relative to the contrast: a paler image is not a more blurred one.
        "sharpness": float(curvature.var() / max(light.var(), _FLAT)),
        "corner brightness": float((np.mean(_in_corners(light, np.mean)) - light.mean()) / room),
        "border brightness": float((light[frame].mean() - light[~frame].mean()) / room),
        "corner detail": float(max(_in_corners(light, np.std)) / room),
        "corner colour": float(max(_in_corners(chroma, np.mean)) / room),
        "white share": float((light >= _WHITE).mean()),
        "black share": float((light <= _BLACK).mean()),
    }


def measure_file(path: str) -> dict[str, float]:
    """Return the properties of a file; its pixels are not decoded."""
    try:
        size = os.path.getsize(path)
        with Image.open(path) as picture:
            width, height = picture.size
            tables: dict[int, Sequence[int]] = getattr(picture, "quantization", None) or {}
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as an image ({error}).") from error
    return {
        "width": width,
        "height": height,
        "aspect": width / height,
        # A file without loss is as large as its pixels make it, and they are measured already.
        "bytes per pixel": size / (width * height) if 0 in tables else np.nan,
        "jpeg quality": _jpeg_quality(tables[0]) if 0 in tables else np.nan,
    }


def _jpeg_quality(table: Sequence[int]) -> float:
    """Return the quality, 1 to 100, that libjpeg's scale gives a luminance table."""
    scale = 100 * float(np.mean(table)) / _QUALITY_50
    return float(np.clip(100 - scale / 2 if scale <= 100 else 5000 / scale, 1, 100))


def _in_corners(
    plane: npt.NDArray[np.float64], measure: Callable[[npt.NDArray[np.float64]], np.floating]
) -> list[float]:
    rows, columns = (max(1, side // _CORNER) for side in plane.shape)
    ends = [(slice(rows), slice(columns)), (slice(rows), slice(-columns, None))]
    ends += [(slice(-rows, None), columns_) for _, columns_ in ends]
    return [float(measure(plane[corner])) for corner in ends]


def _frame(shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Return which pixels lie at the border."""
    rows, columns = (max(1, side // _FRAME) for side in shape)
    frame = np.ones(shape, dtype=bool)
    frame[rows:-rows, columns:-columns] = False
    return frame


_SIGNIFICANT = 0.05

_CLEAR = 0.65  # AUC, or 0.35, from which on a difference is called clear: with thousands of images all are significant


def compare_properties(
    measured: Measurements,
    labels: IntArray,
    is_wrong: BoolArray,
    *,
    class_names: Sequence[str],
    permutations: int,
    seed: int,
    progress: Progress = silent,
) -> tuple[Property, ...]:
    """Return the properties, the oddest first: each with its oddest class, and with all that differ significantly."""
    everything = Family(rank_columns(measured.values), labels, len(class_names))
    with_errors = {
        label: np.flatnonzero(labels == label)
        for label in range(len(class_names))
        if min(np.sum(is_wrong & (labels == label)), np.sum(~is_wrong & (labels == label))) >= LEAST
    }
    families = [everything] + [
        Family(rank_columns(measured.values[rows]), is_wrong[rows].astype(np.int64), 2) for rows in with_errors.values()
    ]
    p_values = compare_together(families, permutations=permutations, seed=seed, progress=progress)
    auc = everything.compare().auc
    errors = {
        label: (family.compare().auc[1], p[1]) for label, family, p in zip(with_errors, families[1:], p_values[1:])
    }
    found = []
    for column, name in enumerate(measured.names):
        here = []
        for label, class_name in enumerate(class_names):
            error = None
            if label in errors:
                error = (float(errors[label][0][column]), float(errors[label][1][column]))
            here.append(
                _describe(name, label, class_name, float(auc[label, column]), float(p_values[0][label, column]), error)
            )
        here.sort(key=_rank)
        found += [here[0], *(other for other in here[1:] if other.level != "none")]
    return tuple(sorted(found, key=_rank))


def _rank(found: Property) -> tuple[int, bool, float, float]:
    return LEVELS.index(found.level), found.p > _SIGNIFICANT, -found.oddness, -abs(found.auc - 0.5)


def _describe(
    name: str, label: int, class_name: str, auc: float, p: float, error: tuple[float, float] | None
) -> Property:
    """Weigh the difference, and more where the model errs less on images that have the class's own sign of it.

    An artifact in few images of a class hardly makes the class differ; that the model errs less on them tells all the
    same, if weakly: some images are harder by nature.
    """
    differs = p <= _SIGNIFICANT
    level: Level = "none"
    if differs:
        level = "clear" if max(auc, 1 - auc) >= _CLEAR else "weak"
    oddness = abs(2 * auc - 1) if differs else 0.0
    more, less = WORDS[name]
    word = more if auc >= 0.5 else less
    sentence = f"Images of class {class_name!r} are not told from the others by {name}: AUC {auc:.2f} ({written_p(p)})."
    if differs:
        sentence = (
            f"Images of class {class_name!r} are {word} than the others: AUC {max(auc, 1 - auc):.2f} ({written_p(p)})."
        )
    if error is not None and error[1] <= _SIGNIFICANT:
        wrong_have_more = error[0] >= 0.5
        fits = not differs or wrong_have_more != (auc >= 0.5)
        level = "weak" if level == "none" else level
        oddness += abs(2 * error[0] - 1) if fits else 0.0
        shown = word if differs else more
        verb = "less" if wrong_have_more != (shown == more) else "more"
        strength = max(error[0], 1 - error[0])
        errs = f"the model errs {verb} on images that are {shown}: AUC {strength:.2f} ({written_p(error[1])})."
        same = f" The class itself is not told from the others by {name}."
        sentence = f"{sentence} Among them {errs}" if differs else f"In class {class_name!r} {errs}{same}"
    return Property(
        name=name,
        label=label,
        auc=auc,
        p=p,
        error_auc=None if error is None else error[0],
        error_p=None if error is None else error[1],
        oddness=oddness,
        level=level,
        sentence=sentence,
    )


def written_p(p: float) -> str:
    """Return a p-value as it is read, with the word that it holds for all that was compared."""
    told = write_p(p)
    return f"corrected p {told}" if told.startswith("<") else f"corrected p = {told}"


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


LEAST_IMAGES = 30  # of a class: fewer have no groups that could be told from chance

_LISTED = 0.1  # a cluster of rulers, 40 of 43, had 0.07: a person who looks at the images loses little by one too many

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
