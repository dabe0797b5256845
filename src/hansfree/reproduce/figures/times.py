"""Run times of the methods."""

from __future__ import annotations

from hansfree.report.reading import method_title
from hansfree.report.style import INK, Drawing, style_of
from hansfree.reproduce.figures.panels import panel_grid, panel_titles
from hansfree.reproduce.keys import Subjects
from hansfree.reproduce.times import seconds_of


def draw_times(subjects: Subjects) -> Drawing | None:
    """Draw bars of the seconds per epoch on a logarithmic axis, with what they are of Vanilla's beside them."""
    times = {key: seconds_of(rows) for key, rows in subjects.items()}
    times = {key: found for key, found in times.items() if found}
    if not times:
        return None
    every = list(dict.fromkeys(method for found in times.values() for method in found))
    titles = panel_titles(times)
    figure, panels = panel_grid(times, height=0.9 + 0.32 * len(every))
    told = []
    for axes, (key, found) in zip(panels, times.items()):
        vanilla = found.get("vanilla")
        for method, mean in found.items():
            place = every.index(method)
            colour = style_of(method)[0]
            axes.barh(place, mean.value, 0.65, xerr=mean.seed_error, color=colour, ecolor=INK)
            share = f"{100 * mean.value / vanilla.value:.0f} %" if vanilla else f"{mean.value:.3g} s"
            axes.annotate(
                share,
                (mean.value + mean.seed_error, place),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=INK,
            )
            told.append(f"{titles[key]}, {method_title(method)}: {mean.value:.3g} s")
        axes.set_title(titles[key], fontsize=9, color=INK)
        axes.set_xscale("log")
        axes.grid(axis="y", visible=False)
    values = [mean.value for found in times.values() for mean in found.values()]
    panels[0].set_xlim(min(values) / 3, max(values) * 5)  # room for the words beside the longest bar
    panels[0].set_yticks(range(len(every)), [method_title(method) for method in every])
    panels[0].set_ylim(len(every) - 0.5, -0.5)
    figure.supxlabel("seconds per epoch (logarithmic)", fontsize=9, color=INK)
    return Drawing(
        "times",
        figure,
        f"Bars of the seconds per epoch. {'; '.join(told)}.",
        "Seconds per epoch of fine-tuning, mean over the runs with its standard error; beside each bar what it is of "
        "Vanilla's.",
    )
