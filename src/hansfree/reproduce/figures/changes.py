"""Class-specific correction: what each method costs the selected, random and all classes."""

from __future__ import annotations

from hansfree.report.style import INK, SKY, VERMILION, Drawing
from hansfree.reproduce.changes import GROUPS, change_titles, changes_of
from hansfree.reproduce.figures.panels import add_legend, panel_grid, panel_titles
from hansfree.reproduce.keys import Facts, FactsBySubject, Subjects

_COLOURS = dict(zip(GROUPS, ((VERMILION, ""), (SKY, "///"), ("#999999", "..."))))
_WIDTH = 0.26


def draw_changes(subjects: Subjects, *, facts: FactsBySubject | None = None) -> Drawing | None:
    """Draw bars of the change of accuracy against Vanilla with their errors, a panel per subject."""
    changes = {key: changes_of(rows) for key, rows in subjects.items()}
    changes = {key: found for key, found in changes.items() if found}
    if not changes:
        return None
    every_named = {
        key: change_titles(found, (facts or {}).get(key, Facts()).class_names) for key, found in changes.items()
    }
    every = list(dict.fromkeys(title for named in every_named.values() for title in named.values()))
    titles = panel_titles(changes)
    figure, panels = panel_grid(changes, height=0.9 + 0.55 * len(every))
    told = []
    for axes, (key, found) in zip(panels, changes.items()):
        named = every_named[key]
        for offset, (group, (colour, hatch)) in zip((-_WIDTH, 0.0, _WIDTH), _COLOURS.items()):
            bars = {every.index(named[variant]): means[group] for variant, means in found.items() if group in means}
            axes.barh(
                [place + offset for place in bars],
                [100 * mean.value for mean in bars.values()],
                _WIDTH,
                xerr=[100 * mean.error for mean in bars.values()],
                color=colour,
                hatch=hatch,
                ec="white",
                ecolor=INK,
                label=f"{group} classes",
            )
            told += [f"{titles[key]}, {every[p]}, {group}: {100 * mean.value:+.1f}" for p, mean in bars.items()]
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.set_title(titles[key], fontsize=9, color=INK)
        axes.grid(axis="y", visible=False)
    panels[0].set_yticks(range(len(every)), every)
    panels[0].set_ylim(len(every) - 0.5, -0.5)
    figure.supxlabel("change of clean accuracy against Vanilla, points", fontsize=9, color=INK)
    add_legend(figure, panels)
    return Drawing(
        "class-specific",
        figure,
        f"Bars of the change of accuracy against Vanilla in points. {'; '.join(told)}.",
        "Change of the accuracy on clean test images against Vanilla: on the classes that react most to the artifact, "
        "on as many others, and on all. Lines: one standard error.",
    )
