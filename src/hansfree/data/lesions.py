"""Drawn skin lesions that ship with the package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, sqrt
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hansfree.errors import DataError, OptionError

Floats = NDArray[np.float32]
ANGLES = 256  # samples of the border's radius


def _colour(red: float, green: float, blue: float) -> Floats:
    return np.array((red, green, blue), dtype=np.float32)


LIGHT_SKIN, DARK_SKIN = _colour(238, 200, 184), _colour(186, 134, 106)
LIGHT_LESION, DARK_LESION = _colour(168, 108, 80), _colour(104, 66, 52)

# The two ways in which a variegated lesion differs from place to place: black-brown to tan, and red to blue-grey.
DARKNESS, REDNESS = _colour(-38, -34, -28), _colour(22, -4, -12)

_PLASTER_COLOURS = ((40, 90, 200), (30, 150, 90), (235, 200, 40), (225, 60, 60), (240, 130, 170), (140, 70, 180))
PLASTERS = tuple(_colour(*rgb) for rgb in _PLASTER_COLOURS)


@dataclass(frozen=True)
class Shape:
    """Where the lesion is; ``reach`` is its border's radius at ``ANGLES`` directions."""

    x: float
    y: float
    turn: float
    aspect: float
    reach: Floats


def draw_shape(rng: np.random.Generator, irregularity: float) -> Shape:
    """Draw the lesion's place and border: smooth for irregularity 0, ragged for 1."""
    x, y = rng.uniform(-0.18, 0.18, 2)
    radius = rng.uniform(0.38, 0.62)
    slow, fast = _waves(rng, 2, 3), _waves(rng, 4, 11)
    reach = radius * np.clip(1 + 0.05 * slow + 0.15 * irregularity * fast, 0.4, 1.5)
    return Shape(x, y, rng.uniform(0, np.pi), rng.uniform(1.0, 1.35), reach.astype(np.float32))


def depth_inside(shape: Shape, size: int) -> Floats:
    """Return how deep each pixel lies in the lesion: 1 at its centre, 0 on the border, negative outside."""
    x, y = coordinates(size)
    cos, sin = np.float32(np.cos(shape.turn)), np.float32(np.sin(shape.turn))
    stretch = np.float32(np.sqrt(shape.aspect))
    dx, dy = x - np.float32(shape.x), y - np.float32(shape.y)
    along, across = (cos * dx + sin * dy) / stretch, (cos * dy - sin * dx) * stretch
    angle = np.arctan2(across, along) * np.float32(ANGLES / (2 * np.pi))
    position = angle + ANGLES  # never negative
    left = position.astype(np.int32)
    part = position - left
    reach = shape.reach[left % ANGLES] * (1 - part) + shape.reach[(left + 1) % ANGLES] * part
    depth: Floats = 1 - np.sqrt(along * along + across * across) / reach
    return depth


def draw_skin(rng: np.random.Generator, size: int) -> Floats:
    """Draw skin of a random tone with blotches and fine lines."""
    tone = LIGHT_SKIN + (DARK_SKIN - LIGHT_SKIN) * np.float32(rng.uniform()) + rng.normal(0, 5, 3).astype(np.float32)
    blotches, lines = field(rng, size, 6), field(rng, size, 24)
    return np.asarray(tone + blotches[..., None] * _colour(2, -4, -4) + (3 * lines)[..., None], dtype=np.float32)


def draw_lesion(rng: np.random.Generator, skin: Floats, depth: Floats, *, variegation: float) -> Floats:
    """Lay the lesion over the skin: of one colour for variegation 0, of many for 1."""
    size = len(skin)
    base = LIGHT_LESION + (DARK_LESION - LIGHT_LESION) * np.float32(rng.uniform())
    base = base + rng.normal(0, 6, 3).astype(np.float32)
    dark, red = field(rng, size, 8), field(rng, size, 8)
    network = field(rng, size, 20) * np.float32(rng.uniform(2, 6))  # pigment network: a nuisance of every class
    amount = np.float32(variegation)
    colour = base + (amount * dark)[..., None] * DARKNESS + (amount * red)[..., None] * REDNESS + network[..., None]
    edge = np.float32(rng.uniform(0.04, 0.12))
    cover = np.clip(0.5 + depth / (2 * edge), 0, 1)[..., None]
    picture: Floats = skin + (colour - skin) * cover
    return picture


def draw_hairs(rng: np.random.Generator, picture: Floats) -> Floats:
    """Lay a few thin, dark, slightly bent hairs over the picture."""
    count = int(rng.poisson(1.5))
    turns, offsets, bends = rng.uniform((0, -0.9, -0.25), (2 * np.pi, 0.9, 0.25), (count, 3)).T.astype(np.float32)
    widths = rng.uniform(0.008, 0.02, count).astype(np.float32)
    starts = rng.uniform(-1.4, 0.2, count).astype(np.float32)
    shade = _colour(45, 32, 28) * np.float32(rng.uniform(0.5, 1.6))
    size = len(picture)
    x, y = coordinates(size)
    clear = np.ones((size, size), dtype=np.float32)
    for turn, offset, bend, width, start in zip(turns, offsets, bends, widths, starts):
        along, across = np.cos(turn) * x + np.sin(turn) * y, np.cos(turn) * y - np.sin(turn) * x
        distance = np.abs(across - offset - bend * along * along)
        # The coverage of a pixel fades over one pixel's width: a hair thinner than a pixel is faint, not dotted.
        cover = np.clip((width - distance) * (size / 2) + 0.5, 0, 1) * min(1.0, width * size)
        clear *= 1 - np.where(along > start, cover, 0)
    covered: Floats = shade + (picture - shade) * clear[..., None]
    return covered


def draw_plaster(
    rng: np.random.Generator, picture: Floats, shape: Shape, depth: Floats
) -> tuple[Floats, NDArray[np.bool_]]:
    """Lay a coloured plaster beside the lesion, and return its mask too.

    It starts on the side where the lesion leaves most skin, and moves outwards until it hides at most a tenth of
    the lesion: the class must stay visible.
    """
    size = len(picture)
    colour = PLASTERS[rng.integers(len(PLASTERS))] + rng.normal(0, 10, 3).astype(np.float32)
    side = np.arctan2(-shape.y, -shape.x) + rng.uniform(-0.9, 0.9)
    length, breadth, turn = rng.uniform((0.38, 0.2, 0), (0.6, 0.3, np.pi))
    lesion = depth > 0
    x, y = coordinates(size)
    for distance in np.arange(rng.uniform(0.7, 0.9), 1.2, 0.06):
        # A square reaches further in its corners: follow its outline, so that the plaster stays in the picture.
        step = distance / max(abs(np.cos(side)), abs(np.sin(side)))
        dx, dy = x - np.float32(step * np.cos(side)), y - np.float32(step * np.sin(side))
        along = np.abs(np.float32(np.cos(turn)) * dx + np.float32(np.sin(turn)) * dy)
        across = np.abs(np.float32(np.cos(turn)) * dy - np.float32(np.sin(turn)) * dx)
        beyond = np.hypot(np.maximum(along - np.float32(length - breadth), 0), across) - np.float32(breadth)
        cover = np.clip(0.5 - beyond * np.float32(size / 2), 0, 1)
        mask = cover > 0
        if 10 * np.count_nonzero(mask & lesion) <= np.count_nonzero(lesion):
            break
    # The wound pad under the middle stands out a little.
    pad = np.where((along < 0.4 * length) & (across < 0.6 * breadth), np.float32(1.12), np.float32(1))
    return picture + (colour * pad[..., None] - picture) * cover[..., None], mask


def light(rng: np.random.Generator, picture: Floats) -> NDArray[np.uint8]:
    """Light the scene from one side, darken the corners, add the camera's noise; return 8-bit values."""
    size = len(picture)
    x, y = coordinates(size)
    turn, slope = rng.uniform((0, 0), (2 * np.pi, 0.12)).astype(np.float32)
    gain, vignette = rng.uniform((0.93, 0.0), (1.05, 0.22)).astype(np.float32)
    corner = np.maximum(x * x + y * y - np.float32(0.6), 0)
    gains = gain * (1 + slope * (np.cos(turn) * x + np.sin(turn) * y)) * (1 - vignette * corner)
    noise = rng.standard_normal(picture.shape, dtype=np.float32)
    pixels = picture * gains[..., None] + np.float32(1.5) * noise
    return np.asarray(np.rint(np.clip(pixels, 0, 255)), dtype=np.uint8)


@lru_cache(maxsize=8)
def coordinates(size: int) -> tuple[Floats, Floats]:
    """Return x (1, size) and y (size, 1) of the pixels' centres."""
    centres = ((2 * np.arange(size) + 1) / size - 1).astype(np.float32)
    return centres[None, :], centres[:, None]


def field(rng: np.random.Generator, size: int, cells: int) -> Floats:
    """Draw smooth noise of variance 1 with about ``cells`` bumps to a side, by splines over a coarse grid."""
    weights = _spline(size, cells)
    coarse = rng.standard_normal((weights.shape[1], weights.shape[1]), dtype=np.float32)
    return np.asarray(weights @ coarse @ weights.T, dtype=np.float32)


@lru_cache(maxsize=32)
def _spline(size: int, cells: int) -> Floats:
    """Return the weights (size, knots) of a cubic B-spline, each row scaled to keep the variance at 1."""
    at = (np.arange(size) + 0.5) * cells / size + 1
    distance = np.abs(at[:, None] - np.arange(cells + 3))
    near, far = 2 / 3 - distance**2 + distance**3 / 2, (2 - distance) ** 3 / 6
    weights = np.where(distance < 1, near, np.where(distance < 2, far, 0))
    return np.asarray(weights / np.linalg.norm(weights, axis=1, keepdims=True), dtype=np.float32)


def _waves(rng: np.random.Generator, first: int, last: int) -> NDArray[np.float64]:
    """Draw a periodic function of the orders ``first`` to ``last`` at ``ANGLES`` angles, of exactly unit variance."""
    angles = np.arange(ANGLES) * 2 * np.pi / ANGLES * np.arange(first, last + 1)[:, None]
    waves = np.concatenate([np.cos(angles), np.sin(angles)])
    weights = rng.standard_normal(len(waves))
    return np.asarray(weights @ waves * np.sqrt(2 / np.sum(weights**2)), dtype=np.float64)


VERSION = 1  # of the drawing: raise it when the pixels of any scene change, for caches are keyed by it

# How far a lesion strays from its class's typical value, in steps between classes. Classes overlap on purpose:
# a task that the lesion alone solves perfectly leaves no reason to learn a shortcut.
SPREAD = 0.22
BORDERS = ("smooth", "wavy", "notched", "ragged")
COLOURS = ("even", "mottled", "variegated")
_CLASS, _SCENE, _PLASTER = 1, 2, 3  # what a random number is for: part of its key


class DrawnImages(ABC):
    """Images that are drawn: each depends only on (seed, id); ids run from ``start``.

    Two sets with the same seed and separate ids are two samples of one world (training and test). Of every
    ``classes`` images in a row each class has one.
    """

    min_size: ClassVar[int]

    def __init__(self, n: int, *, size: int, classes: int, seed: int, start: int) -> None:
        for name, value, least in (("n", n, 1), ("size", size, self.min_size), ("seed", seed, 0), ("start", start, 0)):
            if value < least:
                raise OptionError(f"{type(self).__name__} needs {name} of at least {least}, not {value}.")
        self.n, self.size, self.seed, self.start = n, size, seed, start
        self.id_range = range(start, start + n)
        self.ids = np.arange(start, start + n, dtype=np.int64)
        self.labels = _balanced_labels(self.ids, classes, seed)

    def __len__(self) -> int:
        return self.n

    def image(self, index: int) -> np.ndarray:
        """Draw the image, uint8 (size, size, 3)."""
        return self.render(index)[0]

    @abstractmethod
    def render(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw the image, and the mask of what is laid over it, bool (size, size)."""

    def _check(self, index: int) -> None:
        if not -self.n <= index < self.n:
            raise DataError(f"There is no image {index}: {self!r} has {self.n}.")

    def _rng(self, index: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, int(self.ids[index]), purpose))


class SyntheticLesions(DrawnImages):
    """Dermoscopy-like pictures whose class is how irregular the border and how varied the colour is.

    Args:
        size: side in pixels, at least 16.
        classes: 2 to 12; 4 is two kinds of border times two kinds of colour.

    Examples:
        >>> train, test = SyntheticLesions(3000), SyntheticLesions(1000, start=3000)
        >>> train.image(0).shape, train.class_names[0]
        ((64, 64, 3), 'smooth-even')
    """

    min_size = 16

    def __init__(self, n: int, *, size: int = 64, classes: int = 4, seed: int = 0, start: int = 0) -> None:
        if not 2 <= classes <= 12:
            raise OptionError(f"SyntheticLesions can draw 2 to 12 classes, not {classes}.")
        super().__init__(n, size=size, classes=classes, seed=seed, start=start)
        self.classes = classes
        self.borders = ceil(sqrt(classes))
        self.colours = ceil(classes / self.borders)

    def __repr__(self) -> str:
        options = f"size={self.size}, classes={self.classes}, seed={self.seed}, start={self.start}"
        return f"SyntheticLesions({self.n}, {options})"

    @property
    def fingerprint(self) -> str:
        """Everything that the pixels and labels depend on."""
        return f"{self!r} v{VERSION}"

    @property
    def class_names(self) -> tuple[str, ...]:
        """Border and colour of each class."""
        borders, colours = _spaced(BORDERS, self.borders), _spaced(COLOURS, self.colours)
        return tuple(f"{border}-{colour}" for border in borders for colour in colours)[: self.classes]

    def render(self, index: int, *, plaster: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Draw the image, with a plaster if asked, and the plaster's mask, bool (size, size).

        The plaster has its own random numbers: outside its mask the image is the same with and without it.
        """
        rng, irregularity, variegation = self._begin(index)
        shape = draw_shape(rng, irregularity)
        depth = depth_inside(shape, self.size)
        picture = draw_skin(rng, self.size)
        picture = draw_lesion(rng, picture, depth, variegation=variegation)
        picture = draw_hairs(rng, picture)
        mask = np.zeros((self.size, self.size), dtype=bool)
        if plaster:
            picture, mask = draw_plaster(self._rng(index, _PLASTER), picture, shape, depth)
        return light(rng, picture), mask

    def _begin(self, index: int) -> tuple[np.random.Generator, float, float]:
        """Return the image's random numbers, and its irregularity and variegation drawn from them."""
        self._check(index)
        rng = self._rng(index, _SCENE)
        border, colour = divmod(int(self.labels[index]), self.colours)
        irregularity = (border + 0.5 + SPREAD * rng.normal()) / self.borders
        variegation = (colour + 0.5 + SPREAD * rng.normal()) / self.colours
        return rng, float(np.clip(irregularity, 0, 1)), float(np.clip(variegation, 0, 1))


def _balanced_labels(ids: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Give every run of ``classes`` ids each class once, in a random order that (seed, run) decides."""
    first, last = int(ids[0]) // classes, int(ids[-1]) // classes
    keys = [(seed, run, _CLASS) for run in range(first, last + 1)]
    orders = np.stack([np.random.default_rng(key).permutation(classes) for key in keys])
    return np.asarray(orders[ids // classes - first, ids % classes], dtype=np.int64)


def _spaced(names: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Pick ``count`` of the ordered names, as far apart as possible."""
    return tuple(names[round(place)] for place in np.linspace(0, len(names) - 1, count))
