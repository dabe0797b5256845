"""The embedded dataset: drawn skin lesions, as many and as large as wanted, without a download."""

from __future__ import annotations

from math import ceil, sqrt

import numpy as np

from hansfree.datasets import dermoscopy
from hansfree.errors import DataError, OptionError

VERSION = 1  # of the drawing: raise it when the pixels of any scene change, for caches are keyed by it

# How far a lesion strays from its class's typical value, in steps between classes. Classes overlap on purpose:
# a task that the lesion alone solves perfectly leaves no reason to learn a shortcut.
SPREAD = 0.22

BORDERS = ("smooth", "wavy", "notched", "ragged")
COLOURS = ("even", "mottled", "variegated")

_CLASS, _SCENE, _PLASTER = 1, 2, 3  # what a random number is for: part of its key


class SyntheticLesions:
    """Dermoscopy-like pictures whose class is told by how irregular the border and how varied the colour is.

    Every picture depends only on (seed, id), whatever was drawn before it; ids run from ``start``, so two sets with
    the same seed and separate ids are two samples of one world (training and test). Of every ``classes`` images in a
    row each class has one.

    Args:
        n: how many images.
        size: side in pixels, at least 16.
        classes: 2 to 12; 4 is two kinds of border times two kinds of colour.
        start: id of the first image.

    Example:
        >>> train, test = SyntheticLesions(3000), SyntheticLesions(1000, start=3000)
        >>> train.image(0).shape, train.class_names[0]
        ((64, 64, 3), 'smooth-even')
    """

    def __init__(self, n: int, *, size: int = 64, classes: int = 4, seed: int = 0, start: int = 0) -> None:
        for name, value, least in (("n", n, 1), ("size", size, 16), ("seed", seed, 0), ("start", start, 0)):
            if value < least:
                raise OptionError(f"SyntheticLesions needs {name} of at least {least}, not {value}.")
        if not 2 <= classes <= 12:
            raise OptionError(f"SyntheticLesions can draw 2 to 12 classes, not {classes}.")
        self.n, self.size, self.classes, self.seed, self.start = n, size, classes, seed, start
        self.borders = ceil(sqrt(classes))
        self.colours = ceil(classes / self.borders)
        self.id_range = range(start, start + n)
        self.ids = np.arange(start, start + n, dtype=np.int64)
        self.labels = balanced_labels(self.ids, classes, seed)

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        return (
            f"SyntheticLesions({self.n}, size={self.size}, classes={self.classes}, seed={self.seed}, "
            f"start={self.start})"
        )

    @property
    def fingerprint(self) -> str:
        """Everything that the pixels and labels depend on."""
        return f"{self!r} v{VERSION}"

    @property
    def class_names(self) -> tuple[str, ...]:
        """Border and colour of each class."""
        borders, colours = _spaced(BORDERS, self.borders), _spaced(COLOURS, self.colours)
        return tuple(f"{border}-{colour}" for border in borders for colour in colours)[: self.classes]

    def image(self, index: int) -> np.ndarray:
        """Draw the image, uint8 (size, size, 3)."""
        return self.render(index)[0]

    def render(self, index: int, *, plaster: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Draw the image, with a plaster if asked, and the plaster's mask, bool (size, size).

        The plaster has its own random numbers: outside its mask the image is the same with and without it.
        """
        rng, irregularity, variegation = self._begin(index)
        shape = dermoscopy.draw_shape(rng, irregularity)
        depth = dermoscopy.depth_inside(shape, self.size)
        picture = dermoscopy.draw_skin(rng, self.size)
        picture = dermoscopy.draw_lesion(rng, picture, depth, variegation=variegation)
        picture = dermoscopy.draw_hairs(rng, picture)
        mask = np.zeros((self.size, self.size), dtype=bool)
        if plaster:
            own = np.random.default_rng((self.seed, int(self.ids[index]), _PLASTER))
            picture, mask = dermoscopy.draw_plaster(own, picture, shape, depth)
        return dermoscopy.light(rng, picture), mask

    def _begin(self, index: int) -> tuple[np.random.Generator, float, float]:
        """Return the image's random numbers, and its irregularity and variegation drawn from them."""
        if not -self.n <= index < self.n:
            raise DataError(f"There is no image {index}: {self!r} has {self.n}.")
        rng = np.random.default_rng((self.seed, int(self.ids[index]), _SCENE))
        border, colour = divmod(int(self.labels[index]), self.colours)
        irregularity = (border + 0.5 + SPREAD * rng.normal()) / self.borders
        variegation = (colour + 0.5 + SPREAD * rng.normal()) / self.colours
        return rng, float(np.clip(irregularity, 0, 1)), float(np.clip(variegation, 0, 1))


def balanced_labels(ids: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Give every run of ``classes`` ids each class once, in a random order that (seed, run) decides."""
    first, last = int(ids[0]) // classes, int(ids[-1]) // classes
    keys = [(seed, run, _CLASS) for run in range(first, last + 1)]
    orders = np.stack([np.random.default_rng(key).permutation(classes) for key in keys])
    labels: np.ndarray = orders[ids // classes - first, ids % classes]
    return labels.astype(np.int64)


def _spaced(names: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Pick ``count`` of the ordered names, as far apart as possible."""
    return tuple(names[round(place)] for place in np.linspace(0, len(names) - 1, count))
