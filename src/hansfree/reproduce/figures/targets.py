"""Ablation of gradient target and norm: accuracies over the strength, a line per target, a panel per norm."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hansfree.report.reading import FIRST
from hansfree.report.style import INK, KINDS, WIDTH, Drawing, new_figure, quieten
from hansfree.reproduce.averages import average, final_rows
from hansfree.reproduce.figures.panels import accuracy_name, add_legend, panel_titles, show_fine_percent, words
from hansfree.reproduce.keys import Subjects
from hansfree.results import Row

# Okabe and Ito's colours with markers of their own
_SAME = "expected"  # all but the mean of "random": drawn over it, dashed
_SETS = {"biased": "with the artifact", "clean": "without"}
Lines = dict[tuple[str, str, str], dict[float, float]]  # (target, norm, set) -> strength -> accuracy


def draw_targets(subjects: Subjects) -> Drawing | None:
    """Draw two rows per subject, with and without the artifact; targets keep their colour in all panels."""
    name = accuracy_name(row for rows in subjects.values() for row in final_rows(rows))
    lines = {key: _lines(rows, name) for key, rows in subjects.items()} if name else {}
    lines = {key: found for key, found in lines.items() if found}
    if not name or not lines:
        return None
    targets = list(dict.fromkeys(target for found in lines.values() for target, _, _ in found))
    norms = list(dict.fromkeys(norm for found in lines.values() for _, norm, _ in found))
    styles = {target: KINDS[place % len(KINDS)] for place, target in enumerate(targets)}
    width = 5.0 if len(norms) == 1 else WIDTH
    figure = new_figure(width=width, height=4.2 * len(lines) + 0.6)
    grid = figure.subplots(2 * len(lines), len(norms), sharex=True, sharey="row", squeeze=False)
    titles = panel_titles(lines)
    for place, (key, found) in enumerate(lines.items()):
        for row, (part, label) in zip(grid[2 * place : 2 * place + 2], _SETS.items()):
            for axes, norm in zip(row, norms):
                quieten(axes)
                axes.set_xscale("log")
                for target in targets:
                    if curve := found.get((target, norm, part)):
                        colour, marker = styles[target]
                        axes.plot(
                            list(curve),
                            list(curve.values()),
                            "--" if target == _SAME else "-",
                            zorder=3 if target == _SAME else 2,
                            color=colour,
                            marker=marker,
                            markersize=4,
                            label=target,
                        )
                # the subject's name is wider than a panel: it stands above the middle one alone
                head = f"{titles[key]}\n{norm}" if norm == norms[len(norms) // 2] else norm
                axes.set_title(head if part == "biased" else "", fontsize=9, color=INK)
            row[0].set_ylabel(f"{words(name)},\n{label}", fontsize=9, color=INK)
            show_fine_percent(row[0].yaxis)
    figure.supxlabel("strength", fontsize=9, color=INK)
    add_legend(figure, list(grid.ravel()))
    note = f"; {_SAME} is dashed, for it often lies on another line" if _SAME in targets else ""
    return Drawing(
        "targets",
        figure,
        f"Curves of {words(name).lower()} over the strength for the targets {', '.join(targets)} and the norms "
        f"{', '.join(norms)}.",
        f"{words(name)} on the test images over the strength, for each gradient target (colour) and each norm "
        f"(column){note}.",
    )


def _lines(rows: Sequence[Row], name: str) -> Lines:
    metrics = {f"{name}_{part}": part for part in _SETS}
    wanted = [
        row
        for row in final_rows(rows)
        if row.method == FIRST and row.metric in metrics and row.strength and row.target and row.norm
    ]
    means = average(wanted, lambda row: (str(row.target), str(row.norm), metrics[row.metric], row.strength or 0.0))
    lines: Lines = {}
    for target, norm, part, strength in sorted(means, key=lambda key: key[3]):
        value = means[target, norm, part, strength].value
        if math.isfinite(value):
            lines.setdefault((target, norm, part), {})[strength] = value
    return lines
