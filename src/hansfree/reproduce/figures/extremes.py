"""The samples along which the CAV agrees most and least with what the artifact does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hansfree.report.style import Drawing
from hansfree.reproduce.figures.panels import image_grid, name_row, show_image


def draw_extremes(alignment: np.ndarray, image: Callable[[int], np.ndarray], *, each: int = 6) -> Drawing | None:
    """Draw the best and the worst aligned samples with their s above; no sample stands in both rows.

    Args:
        alignment: s of every sample; NaN where the artifact changed nothing, which has no rank.
        image: from a sample's place in ``alignment`` to its pixels, uint8 (height, width, 1 or 3).
        each: how many of either end.
    """
    ranked = np.argsort(-alignment, kind="stable")[: int(np.isfinite(alignment).sum())]  # NaN sort last
    each = min(each, len(ranked) // 2)
    if each == 0:
        return None
    ends = {"best": ranked[:each], "worst": ranked[::-1][:each]}
    figure, grid = image_grid(2, each, room=0.25)
    for axes_row, (name, samples) in zip(grid, ends.items()):
        for axes, sample in zip(axes_row, samples):
            show_image(axes, image(int(sample)), title=f"s = {alignment[sample]:.2f}")
        name_row(axes_row[0], f"{name} aligned")
    told = {name: ", ".join(f"{alignment[sample]:.2f}" for sample in samples) for name, samples in ends.items()}
    return Drawing(
        "extremes",
        figure,
        f"Best aligned samples, s of {told['best']}; worst aligned samples, s of {told['worst']}.",
        "Samples whose activations change most and least along the CAV when the artifact is inserted: the cosine s "
        "stands above each.",
    )
