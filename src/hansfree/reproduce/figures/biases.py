"""What the biases look like: clean and biased images, and what hides in the lowest bits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from hansfree.errors import OptionError
from hansfree.report.style import Drawing
from hansfree.reproduce.figures.panels import image_grid, name_row, show_image

_MOST_PAIRS = 4
_MOST_IMAGES = 4
_UNSEEN_BITS = 3  # a change of so many low bits cannot be seen


def draw_biases(
    images: Mapping[str, tuple[np.ndarray, np.ndarray]], *, in_scenes: Collection[str] = ()
) -> Drawing | None:
    """Draw the data-bias overview: a row per bias, each image beside its biased twin.

    Args:
        images: by the bias's name the clean and the biased images, uint8 (n, height, width, 1 or 3) each.
        in_scenes: names of biases that are not put in: their biased images are other ones, not twins.
    """
    images = {name: pair for name, pair in images.items() if min(map(len, pair))}
    if not images:
        return None
    pairs = min(_MOST_PAIRS, max(min(map(len, pair)) for pair in images.values()))
    figure, grid = image_grid(len(images), 2 * pairs)
    for row, (name, (clean, biased)) in enumerate(images.items()):
        for pair in range(pairs):
            left, right = grid[row, 2 * pair : 2 * pair + 2]
            if pair >= min(len(clean), len(biased)):
                left.axis("off")
                right.axis("off")
                continue
            show_image(left, clean[pair], title="clean" if row == 0 else "")
            show_image(right, biased[pair], title="biased" if row == 0 else "")
        name_row(grid[row, 0], name)
    return Drawing(
        "biases",
        figure,
        f"Pairs of images without and with the artifact, for {', '.join(images)}.",
        _caption(images, in_scenes),
    )


def _caption(names: Iterable[str], in_scenes: Collection[str]) -> str:
    put_in = [name for name in names if name not in in_scenes]
    others = [name for name in names if name in in_scenes]
    apart = "images without the artifact, and to the right of each another one that has it"
    if not others:
        return "The biases: each image without the artifact, and to its right with it."
    if not put_in:
        return f"The biases: {apart}."
    return f"The biases: each image without the artifact, and to its right with it; for {', '.join(others)}, {apart}."


def draw_hidden_bits(clean: np.ndarray, attacked: np.ndarray, *, bits: int) -> Drawing | None:
    """Draw images without and with a message in their lowest bits, and those bits alone.

    Args:
        clean: uint8 (n, height, width, 1 or 3).
        attacked: the same images with the message.
        bits: how many of the lowest bits are shown, stretched to the full range.
    """
    if not 1 <= bits <= 8:
        raise OptionError(f"A pixel has 1 to 8 bits to show, not {bits}.")
    n = min(len(clean), len(attacked), _MOST_IMAGES)
    if n == 0:
        return None
    figure, grid = image_grid(n, 4, side=2.0)
    word = "bit" if bits == 1 else f"{bits} bits"
    heads = ("clean", "attacked", f"last {word}, clean", f"last {word}, attacked")
    for row in range(n):
        shown = (clean[row], attacked[row], lowest_bits(clean[row], bits), lowest_bits(attacked[row], bits))
        for axes, head, image in zip(grid[row], heads, shown):
            show_image(axes, image, title=head if row == 0 else "")
    seen = "The attack is all but invisible; t" if bits <= _UNSEEN_BITS else "T"
    return Drawing(
        "lsb",
        figure,
        f"{n} images without and with a hidden message, and their last {word}.",
        f"{seen}he last {word}, stretched to the full range, show the message. All letters a to z begin with the same "
        "three bits, hence the stripes where the width is a multiple of 8.",
    )


def lowest_bits(image: np.ndarray, bits: int) -> np.ndarray:
    """Return the lowest bits of every value, stretched from 0 to 255."""
    most = (1 << bits) - 1
    table: np.ndarray = np.rint(np.arange(most + 1) * (255.0 / most)).astype(np.uint8)
    shown: np.ndarray = table[image & np.uint8(most)]
    return shown
