"""All strengths of all methods: accuracy without against accuracy with the artifact."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hansfree.report.reading import Variant
from hansfree.report.style import FAINT, INK, Drawing, drawn_order, style_of
from hansfree.reproduce.averages import average, final_rows, unseeded
from hansfree.reproduce.figures.panels import (
    accuracy_name,
    add_legend,
    panel_grid,
    panel_titles,
    show_fine_percent,
    words,
)
from hansfree.reproduce.keys import Subjects
from hansfree.results import Row

Point = tuple[float, float, bool]  # clean, biased, whether it was chosen


def draw_scatter(subjects: Subjects) -> Drawing | None:
    """Draw every strength as a point, means over seeds, the chosen ones large; ideal is the upper right corner."""
    name = accuracy_name(row for rows in subjects.values() for row in final_rows(rows))
    points = {key: accuracy_points(rows, name) for key, rows in subjects.items()} if name else {}
    points = {key: found for key, found in points.items() if found}
    if not name or not points:
        return None
    titles = panel_titles(points)
    figure, panels = panel_grid(points, height=3.0)
    for axes, (key, found) in zip(panels, points.items()):
        axes.axline((0.5, 0.5), slope=1, color=FAINT, linewidth=1.2, zorder=0)
        for variant, path in found.items():
            colour, marker = style_of(variant.method)
            others = [(clean, biased) for clean, biased, is_chosen in path if not is_chosen]
            taken = [(clean, biased) for clean, biased, is_chosen in path if is_chosen]
            if others:
                axes.plot(*zip(*others), marker, color=colour, alpha=0.45, markersize=4.5, mew=0)
            if taken:
                axes.plot(*zip(*taken), marker, color=colour, markersize=9, mec="white", label=variant.title(found))
        axes.set_title(titles[key], fontsize=9, color=INK)
    show_fine_percent(panels[0].xaxis, panels[0].yaxis)
    figure.supxlabel(f"{words(name)}, without the artifact", fontsize=9, color=INK)
    figure.supylabel(f"{words(name)}, with the artifact", fontsize=9, color=INK)
    add_legend(figure, panels)
    count = sum(len(path) for found in points.values() for path in found.values())
    return Drawing(
        "scatter",
        figure,
        f"Scatter of {count} models: {words(name).lower()} with the artifact against that without, for "
        f"{', '.join(titles.values())}.",
        "All strengths on the test images; large marks are the chosen ones. On the grey line the artifact costs "
        "nothing; up and to the right is better.",
    )


def accuracy_points(rows: Sequence[Row], name: str) -> dict[Variant, list[Point]]:
    """Return (clean, biased, chosen) of every variant and strength, means over seeds; those not finite are left out."""
    final = [row for row in final_rows(rows) if not row.method.startswith("cav:")]
    means = average(final, lambda row: (unseeded(row), row.strength, row.metric))
    chosen = {(unseeded(row), row.strength) for row in final if row.chosen}
    found: dict[Variant, list[Point]] = {}
    for (variant, strength, metric), clean in means.items():
        biased = means.get((variant, strength, f"{name}_biased"))
        if metric == f"{name}_clean" and biased and math.isfinite(clean.value + biased.value):
            found.setdefault(variant, []).append((clean.value, biased.value, (variant, strength) in chosen))
    order = drawn_order()
    return dict(sorted(found.items(), key=lambda i: order.index(i[0].method) if i[0].method in order else len(order)))
