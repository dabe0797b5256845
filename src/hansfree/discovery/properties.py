"""Image properties (brightness, colours, corners, file size) compared with classes and with the model's errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy.stats import rankdata

from hansfree._internal.progress import Progress, silent
from hansfree.data import ImageDataset, to_rgb
from hansfree.errors import DataError
from hansfree.report import write_p

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Level = Literal["clear", "weak", "none"]
Words = tuple[str, str]  # images with more of a property "are ...", and those with less

LEVELS: tuple[Level, ...] = ("clear", "weak", "none")  # in order of rank
SIGNIFICANT = 0.05
_CLEAR_AUC = 0.65  # or 0.35: with thousands of images every difference is significant
MIN_COMPARED = 5  # images on each side of a comparison
_ROUNDING = 1e-9
_CORNER, _FRAME = 8, 16  # a corner and the border reach this part of a side into the image
_MIN_SIDE = 3
_MIN_VARIANCE = 1e-6  # below: an image without contrast
_MIN_HEADROOM = 8.0  # of 255: nearer to black or white only noise is left
_WHITE, _BLACK = 250, 5  # of 255
_LUMA = np.array([0.299, 0.587, 0.114])
_QUALITY_50 = 57.625  # mean of the standard luminance table, which is quality 50

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


@dataclass(frozen=True, kw_only=True)
class Property:
    """How a property of the images correlates with a class, and with the model's errors in it."""

    name: str
    label: int
    auc: float  # of the property, class against the others
    p: float  # corrected for all properties and classes
    error_auc: float | None  # within the class, errors against correct ones; None without errors
    error_p: float | None
    anomaly: float  # 0 to 2; properties are ranked by it
    level: Level
    sentence: str


@dataclass(frozen=True, eq=False)
class Measurements:
    """Properties, one row per image; NaN where not available."""

    names: tuple[str, ...]
    values: FloatArray  # (images, properties)


def measure_images(
    images: ImageDataset, *, paths: Sequence[str] | None = None, progress: Progress = silent
) -> Measurements:
    """Measure every image as the model sees it, and its file.

    Args:
        paths: Of the files, one per image; None where there are none.
    """
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

    Contrast, colours and corners are relative to the headroom that the brightness leaves up to white or down to black.
    Otherwise a brighter exposure would change all of them, often more than the brightness.
    """
    if image.ndim != 3 or min(image.shape[:2]) < _MIN_SIDE:
        raise DataError(f"Properties need images of {_MIN_SIDE} x {_MIN_SIDE} pixels or more, not {image.shape}.")
    colours = to_rgb(image)
    values = colours.astype(np.float64)
    light = values @ _LUMA
    headroom = max(min(light.mean(), 255 - light.mean()), _MIN_HEADROOM)
    red, green, blue = values.mean(axis=(0, 1))
    chroma = values.max(axis=2) - values.min(axis=2)
    frame = np.ones(light.shape, dtype=bool)
    rows, columns = (max(1, side // _FRAME) for side in light.shape)
    frame[rows:-rows, columns:-columns] = False
    curvature = 4 * light[1:-1, 1:-1] - light[:-2, 1:-1] - light[2:, 1:-1] - light[1:-1, :-2] - light[1:-1, 2:]
    return {
        "brightness": float(light.mean()),
        "contrast": float(light.std() / headroom),
        "saturation": float(chroma.mean() / headroom),
        "red cast": float((red - (green + blue) / 2) / headroom),
        "blue cast": float((blue - (red + green) / 2) / headroom),
        # Relative to the contrast: pale is not blurred.
        "sharpness": float(curvature.var() / max(light.var(), _MIN_VARIANCE)),
        "corner brightness": float((np.mean(_in_corners(light, np.mean)) - light.mean()) / headroom),
        "border brightness": float((light[frame].mean() - light[~frame].mean()) / headroom),
        "corner detail": float(max(_in_corners(light, np.std)) / headroom),
        "corner colour": float(max(_in_corners(chroma, np.mean)) / headroom),
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
        # The size of a lossless file depends on its pixels, which are measured already.
        "bytes per pixel": size / (width * height) if 0 in tables else np.nan,
        "jpeg quality": _jpeg_quality(tables[0]) if 0 in tables else np.nan,
    }


def _jpeg_quality(table: Sequence[int]) -> float:
    """Return the quality, 1 to 100, that libjpeg's scale gives a luminance table."""
    scale = 100 * float(np.mean(table)) / _QUALITY_50
    return float(np.clip(100 - scale / 2 if scale <= 100 else 5000 / scale, 1, 100))


def _in_corners(plane: FloatArray, measure: Callable[[FloatArray], np.floating]) -> list[float]:
    rows, columns = (max(1, side // _CORNER) for side in plane.shape)
    bands = (plane[:rows], plane[-rows:])
    return [float(measure(corner)) for band in bands for corner in (band[:, :columns], band[:, -columns:])]


class Comparison(NamedTuple):
    """AUC of every property between groups of images and all others, and its z-score."""

    auc: FloatArray  # (groups, properties)
    z: FloatArray


def rank_columns(values: npt.NDArray[np.floating]) -> FloatArray:
    """Return the rank of each value in its column, from 1; ties share theirs, and NaN is in the middle.

    So an AUC of these ranks counts one half for every pair that cannot be ordered.
    """
    ranks = rankdata(values, axis=0, nan_policy="omit")
    is_unknown = np.isnan(values)
    return np.where(is_unknown, (len(values) + 1) / 2, ranks + is_unknown.sum(axis=0) / 2)


def compare_groups(ranks: FloatArray, number: IntArray, count: int) -> Comparison:
    """Compare each of ``count`` groups with the rest; with too few images on a side the AUC is 0.5 and z is 0."""
    n = len(ranks)
    sizes = np.bincount(number, minlength=count).astype(np.float64)
    sums = np.stack([np.bincount(number, column, count) for column in ranks.T], axis=1)
    usable = ((sizes >= MIN_COMPARED) & (n - sizes >= MIN_COMPARED))[:, None]
    pairs = np.where(usable, (sizes * (n - sizes))[:, None], 1.0)
    auc = (sums - (sizes * (sizes + 1))[:, None] / 2) / pairs
    # Of these ranks under permutation, with ties.
    error = np.sqrt(ranks.var(axis=0) / (max(n - 1, 1) * pairs))
    moves = usable & (error > 0)
    return Comparison(np.where(moves, auc, 0.5), np.divide(auc - 0.5, error, out=np.zeros_like(auc), where=moves))


class Family(NamedTuple):
    """Ranks of images in all properties, and the group of each image."""

    ranks: FloatArray
    number: IntArray
    n_groups: int


def compare_together(
    families: Sequence[Family], *, permutations: int, seed: int, progress: Progress = silent
) -> list[FloatArray]:
    """Return a p-value for every comparison of every family, corrected for all of them (Westfall and Young's max-T).

    Groups are permuted within each family; p is how often the largest of all z-scores is then as large. Correlated
    properties are not penalised twice.
    """
    largest = np.zeros(permutations)
    for trial in progress(range(permutations), total=permutations, label="permuting labels"):
        rng = np.random.default_rng((seed, trial))
        permuted = [compare_groups(ranks, rng.permutation(number), count) for ranks, number, count in families]
        largest[trial] = max(np.abs(compared.z).max() for compared in permuted)
    ordered = np.sort(largest)
    p_values = []
    for family in families:
        z = np.abs(compare_groups(*family).z) - _ROUNDING
        reached = permutations - np.searchsorted(ordered, z, side="left")
        p_values.append((1 + reached) / (1 + permutations))  # the actual labels count as one permutation
    return p_values


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
    """Return the properties, the most anomalous first: each with its most anomalous class and all significant ones."""
    counts = [np.bincount(labels[is_wrong == wrong], minlength=len(class_names)) for wrong in (False, True)]
    with_errors = np.flatnonzero(np.minimum(*counts) >= MIN_COMPARED).tolist()
    families = [Family(rank_columns(measured.values), labels, len(class_names))]
    for label in with_errors:
        inside = labels == label
        families.append(Family(rank_columns(measured.values[inside]), is_wrong[inside].astype(np.int64), 2))
    p_values = compare_together(families, permutations=permutations, seed=seed, progress=progress)
    pairs = [np.stack([compare_groups(*family).auc, p], axis=-1) for family, p in zip(families, p_values)]
    errors = dict(zip(with_errors, pairs[1:]))
    found = []
    for column, name in enumerate(measured.names):
        of_classes = []
        for label, class_name in enumerate(class_names):
            auc, p = pairs[0][label, column].tolist()
            error_auc, error_p = errors[label][1, column].tolist() if label in errors else (None, None)
            of_classes.append(_describe(name, label, class_name, auc, p, error_auc, error_p))
        of_classes.sort(key=_rank)
        found += [of_classes[0], *(other for other in of_classes[1:] if other.level != "none")]
    return tuple(sorted(found, key=_rank))


def _rank(found: Property) -> tuple[int, bool, float, float]:
    return LEVELS.index(found.level), found.p > SIGNIFICANT, -found.anomaly, -abs(found.auc - 0.5)


def _describe(
    name: str, label: int, class_name: str, auc: float, p: float, error_auc: float | None, error_p: float | None
) -> Property:
    """Score the difference, and more where the model makes fewer errors on images with the class's own tendency.

    An artifact in few images hardly changes the class; fewer errors on them are weak evidence all the same, as some
    images are harder than others.
    """
    words, about = WORDS[name], f"Images of class {class_name!r}"
    level: Level = "none"
    anomaly, differs = 0.0, p <= SIGNIFICANT
    sentence = f"{about} do not differ from the others in {name}: AUC {auc:.2f} ({format_p(p)})."
    if differs:
        strength, anomaly = max(auc, 1 - auc), abs(2 * auc - 1)
        level = "clear" if strength >= _CLEAR_AUC else "weak"
        sentence = f"{about} are {words[auc < 0.5]} than the others: AUC {strength:.2f} ({format_p(p)})."
    if error_auc is not None and error_p is not None and error_p <= SIGNIFICANT:
        wrong_have_more, is_less = error_auc >= 0.5, differs and auc < 0.5
        if not differs or wrong_have_more == is_less:
            anomaly += abs(2 * error_auc - 1)
        verb = "fewer" if wrong_have_more == is_less else "more"
        by = f"AUC {max(error_auc, 1 - error_auc):.2f} ({format_p(error_p)})"
        errs = f"the model makes {verb} errors on images that are {words[is_less]}: {by}."
        if differs:
            sentence = f"{sentence} Among them {errs}"
        else:
            level = "weak"
            sentence = f"In class {class_name!r} {errs} The class itself does not differ from the others in {name}."
    return Property(
        name=name,
        label=label,
        auc=auc,
        p=p,
        error_auc=error_auc,
        error_p=error_p,
        anomaly=anomaly,
        level=level,
        sentence=sentence,
    )


def format_p(p: float) -> str:
    """Return a corrected p-value as text."""
    text = write_p(p)
    return f"corrected p {text}" if text.startswith("<") else f"corrected p = {text}"
