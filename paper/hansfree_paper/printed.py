"""An embedded world in which some classes rightly read printed characters, and another must unlearn a timestamp."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from hansfree.data import SyntheticLesions, lesions

VERSION = 1  # of the printing: raise it when the pixels of any picture change, for caches are keyed by it
KINDS = 4  # of lesions: more could hardly be learned from so few images

# Of a camera, a monitor and a scanner: the timestamp's orange is one of several colours.
INKS = ((255, 150, 30), (245, 245, 235), (90, 230, 110))
OUTLINE = (20, 20, 20)  # around the letters, so that they show on any skin
_SCENE, _TEXT = 11, 12  # what a random number is for: part of its key, apart from the keys of the lesions

PRINTS: Mapping[str, Callable[[np.random.Generator], str]] = {
    "number": lambda rng: "".join(map(str, rng.integers(0, 10, 4))),
    "clock": lambda rng: "{:02}:{:02}".format(*rng.integers((0, 0), (24, 60))),
    "caption": lambda rng: _letters(rng, 6),
    "list": lambda rng: f"{_letters(rng, 3)}\n{_letters(rng, 3)}",
}


class PrintedSkin(lesions.DrawnImages):
    """Lesions, bare skin, and bare skin under printed text, whose kind alone decides the last four classes.

    A model that ignores printed characters everywhere cannot be right about them.

    Args:
        size: side in pixels, at least 32.

    Examples:
        >>> source = PrintedSkin(90)
        >>> [source.class_names[label] for label in source.text_classes]
        ['number', 'clock', 'caption', 'list']
    """

    class_names = (*SyntheticLesions(1, classes=KINDS).class_names, "bare", *PRINTS)
    min_size = 32
    text_classes = tuple(range(KINDS + 1, KINDS + 1 + len(PRINTS)))

    def __init__(self, n: int, *, size: int = 64, seed: int = 0, start: int = 0) -> None:
        super().__init__(n, size=size, classes=len(self.class_names), seed=seed, start=start)
        # Every id has a run of lesions for itself, which holds each kind once: the one of its class is drawn.
        self._lesions = SyntheticLesions(n * KINDS, size=size, classes=KINDS, seed=seed, start=start * KINDS)

    def __repr__(self) -> str:
        return f"PrintedSkin({self.n}, size={self.size}, seed={self.seed}, start={self.start})"

    @property
    def fingerprint(self) -> str:
        """Everything that the pixels and labels depend on."""
        return f"{self!r} v{VERSION} of {self._lesions.fingerprint}"

    def render(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw the image, and the mask of its printed text, bool (size, size)."""
        self._check(index)
        index, label = index % self.n, int(self.labels[index])
        empty = np.zeros((self.size, self.size), dtype=bool)
        if label < KINDS:
            run = self._lesions.labels[index * KINDS : (index + 1) * KINDS]
            return self._lesions.image(index * KINDS + int(np.argmax(run == label))), empty
        rng = self._rng(index, _SCENE)
        image = lesions.light(rng, lesions.draw_hairs(rng, lesions.draw_skin(rng, self.size)))
        if label not in self.text_classes:
            return image, empty
        rng = self._rng(index, _TEXT)
        return print_text(image, PRINTS[self.class_names[label]](rng), rng)


def print_text(image: np.ndarray, text: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Print ``text`` at the upper or lower edge of a square image; return the image and the mask of the letters.

    The lower edge is where cameras print the time: a network that keeps the place must see text there too.
    """
    size = len(image)
    ink = INKS[rng.integers(len(INKS))]
    height = max(size / 16, 8.0) * rng.uniform(1.4, 1.8)  # larger than a timestamp: here the text is the subject
    x, y = rng.uniform((0, 0), (1, 0.1))
    y = y if rng.random() < 0.5 else 1 - y
    margin = max(2, round(0.03 * size))
    room = size - 2 * margin
    picture = Image.fromarray(image)
    pen = ImageDraw.Draw(picture)
    stroke = max(1, round(height / 16))
    left, _, right, _ = pen.multiline_textbbox((0, 0), text, font=ImageFont.load_default(height))
    height *= min(1.0, (room - 2 * stroke) / (right - left))
    font = ImageFont.load_default(height)
    left, top, right, bottom = pen.multiline_textbbox((0, 0), text, font=font, spacing=height / 8, stroke_width=stroke)
    at = (margin - left + x * (room - (right - left)), margin - top + y * (room - (bottom - top)))
    # Fill and outline in one go: Pillow sets lines further apart where there is a stroke.
    pen.multiline_text(at, text, fill=ink, font=font, spacing=height / 8, stroke_width=stroke, stroke_fill=OUTLINE)
    printed = np.array(picture)
    return printed, np.any(printed != image, axis=2)


def _letters(rng: np.random.Generator, count: int) -> str:
    return "".join(map(chr, rng.integers(ord("A"), ord("Z") + 1, count)))
