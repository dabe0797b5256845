"""Grids of panels and of images that all figures share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from hansfree.datasets.decoding import in_colour
from hansfree.report.style import GREEN, INK, WIDTH, new_figure, quieten
from hansfree.reproduce.keys import SubjectKey
from hansfree.results import Row

ACCURACIES = ("accuracy", "balanced_accuracy")  # the first that the rows have; the paper plots the plain one
_MOST_COLUMNS = 3
_SINGLE = 5.0  # inches: the width of a panel that stands alone
_MARGIN = 0.35  # inches: for the names of rows and columns of images
_FITTING = 14  # letters of 9 points beside an image
_DECIMALS = 3  # of a percent, at most


def panel_titles(keys: Iterable[SubjectKey]) -> dict[SubjectKey, str]:
    """Return what tells the subjects apart; of a single one, everything."""
    keys = list(keys)
    fields = [name for name in ("model", "artifact", "data") if len({getattr(key, name) for key in keys}) > 1]
    return {key: " · ".join(getattr(key, name) for name in fields) if fields else key.title for key in keys}


def panel_grid(keys: Collection[SubjectKey], *, height: float = 2.8) -> tuple[Figure, list[Axes]]:
    """Return a quiet panel per subject; all share their scales, and one alone is not stretched over the page.

    A row holds the biases of one model where they are four at most and every model has as many.

    Args:
        keys: the subjects, in the order of the panels.
        height: of one row, in inches.
    """
    per_model = set(Counter(key.model for key in keys).values())
    n = len(keys)
    columns = per_model.pop() if len(per_model) == 1 else _MOST_COLUMNS
    columns = min(n, columns if 1 < columns <= 4 else _MOST_COLUMNS)
    figure = new_figure(width=_SINGLE if n == 1 else WIDTH, height=height * math.ceil(n / columns) + 0.4)
    grid = figure.subplots(math.ceil(n / columns), columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes in grid[:n]:
        quieten(axes)
    for place, axes in enumerate(grid[n:], start=n):
        axes.remove()
        grid[place - columns].tick_params(labelbottom=True)  # now the lowest panel of its column
    return figure, list(grid[:n])


def name_ticks(panels: Sequence[Axes], names: Sequence[str]) -> None:
    """Write words under the bars 0, 1, ...; slanted where panels are narrow."""
    is_narrow = len(panels) > _MOST_COLUMNS
    for axes in panels:
        axes.set_xticks(range(len(names)), names, fontsize=8)
        for label in axes.get_xticklabels():
            label.set(rotation=30 if is_narrow else 0, ha="right" if is_narrow else "center")
        axes.grid(axis="x", visible=False)


def accuracy_name(rows: Iterable[Row]) -> str | None:
    """Return the accuracy that the rows have both without and with the artifact, None for none."""
    present = {row.metric for row in rows}
    return next((name for name in ACCURACIES if {f"{name}_clean", f"{name}_biased"} <= present), None)


def words(metric: str) -> str:
    """Return a metric's name as it stands beside an axis."""
    return metric.replace("_", " ").capitalize()


def show_image(axes: Axes, image: np.ndarray | None, *, title: str = "", mask: np.ndarray | None = None) -> None:
    """Show pixels without ticks; the mask's outline is drawn unless it is empty or fills the image."""
    if image is not None:
        axes.imshow(in_colour(image), interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color("#BBBBBB")
    axes.set_title(title, fontsize=9, color=INK)
    if mask is not None and mask.any() and not mask.all():
        axes.contour(mask.astype(float), levels=[0.5], colors=[GREEN], linewidths=1.0)


def image_grid(rows: int, columns: int, *, side: float | None = None, room: float = 0.0) -> tuple[Figure, np.ndarray]:
    """Return a figure and its (rows, columns) axes for square images, as wide as the page at most.

    Args:
        rows: of the grid.
        columns: of the grid.
        side: an image's width in inches; None fills the page with at least five columns.
        room: for words above the images of every row but the first, in inches.
    """
    side = side or (WIDTH - _MARGIN) / max(columns, 5)
    figure = new_figure(width=side * columns + _MARGIN, height=(side + room) * rows + _MARGIN)
    figure.set_layout_engine("constrained", w_pad=0.02, h_pad=0.02, wspace=0.0, hspace=0.0)
    return figure, figure.subplots(rows, columns, squeeze=False)


def name_row(axes: Axes, text: str) -> None:
    """Write a row's name to the left of its first image, each word in a line and small enough for the image's side."""
    lines = text.split(" · ")
    size = 9.0 * min(1.0, _FITTING / max(1, *map(len, lines)))
    axes.set_ylabel("\n".join(lines), fontsize=size, color=INK)


class _FinePercent(PercentFormatter):
    """Percent with as many decimals as the ticks need to differ, and no more."""

    def format_ticks(self, values: list[float]) -> list[str]:
        shares = 100 * np.asarray(values, dtype=np.float64)
        self.decimals = next(
            (d for d in range(_DECIMALS) if np.allclose(shares, shares.round(d), atol=1e-6)), _DECIMALS
        )
        return super().format_ticks(values)


def show_fine_percent(*sides: Axis) -> None:
    """Write the ticks of shares in percent, also on an axis that spans a few points only."""
    for side in sides:
        side.set_major_formatter(_FinePercent(1.0))


def add_legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """Collect the labels of all panels, each once, in one legend above them."""
    handles: dict[str, Artist] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    if handles:
        widest = 0.6 + 0.075 * max(map(len, handles))  # inches: the sign and, at 9 points, the letters
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside upper center",
            ncols=max(1, min(len(handles), int(figure.get_figwidth() / widest))),
            frameon=False,
            fontsize=9,
            columnspacing=1.2,
            handletextpad=0.5,
        )
