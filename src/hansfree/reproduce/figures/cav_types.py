"""Ablation of the CAV: what RR-ClArC reaches with each."""

from __future__ import annotations

import math

from hansfree.report.reading import FIRST
from hansfree.report.style import INK, Drawing, show_percent, style_of
from hansfree.reproduce.averages import Average, chosen_scores
from hansfree.reproduce.figures.panels import accuracy_name, add_legend, name_ticks, panel_grid, panel_titles, words
from hansfree.reproduce.keys import SubjectKey, Subjects


def draw_cav_types(subjects: Subjects) -> Drawing | None:
    """Draw bars of the accuracy with the artifact per CAV type; a dashed line is Vanilla's."""
    name = accuracy_name(row for rows in subjects.values() for row in rows)
    metric = f"{name}_biased"
    bars: dict[SubjectKey, dict[str, Average]] = {}
    vanilla: dict[SubjectKey, float] = {}
    for key, rows in subjects.items():
        for variant, scores in chosen_scores(rows).items():
            if metric not in scores or not math.isfinite(scores[metric].value):
                continue
            if variant.method == FIRST and variant.cav is not None:
                bars.setdefault(key, {}).setdefault(variant.cav, scores[metric])
            elif variant.method == "vanilla":
                vanilla[key] = scores[metric].value
    if not name or not bars:
        return None
    names = list(dict.fromkeys(cav for found in bars.values() for cav in found))
    titles = panel_titles(bars)
    figure, panels = panel_grid(bars, height=2.6)
    for axes, (key, found) in zip(panels, bars.items()):
        axes.bar(
            [names.index(cav) for cav in found],
            [mean.value for mean in found.values()],
            0.65,
            yerr=[mean.error for mean in found.values()],
            color=style_of(FIRST)[0],
            ecolor=INK,
        )
        for cav, mean in found.items():
            axes.annotate(
                f"{100 * mean.value:.0f}",
                (names.index(cav), mean.value + mean.error),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=INK,
            )
        if key in vanilla:
            axes.axhline(vanilla[key], color=INK, linestyle="--", linewidth=1.2, label="Vanilla")
        axes.set_title(titles[key], fontsize=9, color=INK)
    show_percent(panels[0].yaxis)
    figure.supylabel(f"{words(name)}, with the artifact", fontsize=9, color=INK)
    name_ticks(panels, names)
    top = max(mean.value + mean.error for found in bars.values() for mean in found.values())
    panels[0].set_ylim(0, top + 0.1)  # room for the numbers
    add_legend(figure, panels)
    told = "; ".join(
        f"{titles[k]}, {cav}: {100 * mean.value:.1f} %" for k, found in bars.items() for cav, mean in found.items()
    )
    return Drawing(
        "cav-types",
        figure,
        f"Bars of {words(name).lower()} with the artifact after correction along each CAV. {told}.",
        "RR-ClArC along different CAVs, each at the strength chosen for it; the dashed line is Vanilla. Lines: one "
        "standard error.",
    )
