"""Ablation of the number of epochs: accuracy on validation images after every epoch, for several strengths."""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.ticker import MaxNLocator

from hansfree.report.reading import FIRST
from hansfree.report.style import INK, WIDTH, Drawing, new_figure, quieten
from hansfree.reproduce.averages import average
from hansfree.reproduce.figures.panels import accuracy_name, add_legend, panel_titles, show_fine_percent, words
from hansfree.reproduce.keys import Subjects
from hansfree.results import Row

_SETS = {"biased": "with the artifact", "clean": "without"}
_MOST_STRENGTHS = 7  # more lines cannot be told apart
_MARKERS = "osD^vPX"
Lines = dict[tuple[float, str], dict[int, float]]  # (strength, set) -> epoch -> accuracy


def draw_epochs(subjects: Subjects) -> Drawing | None:
    """Draw biased (above) and clean accuracy over the epochs, a column per subject, weak strengths dark, strong bright.

    Of many strengths, a few that are evenly spread are shown.
    """
    rows = {
        key: [row for row in found if row.epoch is not None and row.method == FIRST] for key, found in subjects.items()
    }
    name = accuracy_name(row for found in rows.values() for row in found)
    lines = {key: _lines(found, name) for key, found in rows.items()} if name else {}
    lines = {key: found for key, found in lines.items() if found}
    if not name or not lines:
        return None
    every = sorted({strength for found in lines.values() for strength, _ in found})
    picked = [every[i] for i in np.unique(np.linspace(0, len(every) - 1, _MOST_STRENGTHS).round().astype(int))]
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, len(picked)))
    figure = new_figure(width=5.0 if len(lines) == 1 else WIDTH, height=5.2)
    grid = figure.subplots(2, len(lines), sharex=True, sharey="row", squeeze=False)
    titles = panel_titles(lines)
    for column, (key, found) in zip(grid.T, lines.items()):
        for axes, part in zip(column, _SETS):
            quieten(axes)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            for strength, colour, marker in zip(picked, colours, _MARKERS):
                if curve := found.get((strength, part)):
                    label = f"strength {strength:g}"
                    axes.plot(
                        list(curve), list(curve.values()), "-", color=colour, marker=marker, markersize=4, label=label
                    )
        column[0].set_title(titles[key], fontsize=9, color=INK)
    for row, label in zip(grid, _SETS.values()):
        row[0].set_ylabel(f"{words(name)},\n{label}", fontsize=9, color=INK)
        show_fine_percent(row[0].yaxis)
    figure.supxlabel("epoch", fontsize=9, color=INK)
    add_legend(figure, list(grid.ravel()))
    return Drawing(
        "epochs",
        figure,
        f"Curves of {words(name).lower()} on validation images over the epochs for the strengths "
        f"{', '.join(f'{strength:g}' for strength in picked)}.",
        f"{words(name)} on the validation images after every epoch of fine-tuning, for several strengths.",
    )


def _lines(rows: Sequence[Row], name: str) -> Lines:
    metrics = {f"{name}_{part}": part for part in _SETS}
    wanted = [row for row in rows if row.metric in metrics and row.strength is not None]
    means = average(wanted, lambda row: (row.strength or 0.0, metrics[row.metric], row.epoch or 0))
    lines: Lines = {}
    for strength, part, epoch in sorted(means):
        value = means[strength, part, epoch].value
        if math.isfinite(value):
            lines.setdefault((strength, part), {})[epoch] = value
    return lines
