"""How well each CAV points along what the artifact does: s and s-bar for all CAVs, a panel per model and artifact."""

from __future__ import annotations

from hansfree.report.style import BLUE, INK, ORANGE, Drawing
from hansfree.reproduce.averages import cav_scores
from hansfree.reproduce.figures.panels import add_legend, name_ticks, panel_grid, panel_titles
from hansfree.reproduce.keys import Subjects

# label, colour, hatch (told apart in grey too), place beside the CAV's name
_BARS = {
    "alignment_sample": ("s, per image", BLUE, "", -0.2),
    "alignment_mean": ("s\N{COMBINING MACRON}, of the mean", ORANGE, "///", 0.2),
}


def draw_alignments(subjects: Subjects) -> Drawing | None:
    """Draw bars of both alignments with their errors; subjects without CAV scores have no panel."""
    scores = {key: {metric: cav_scores(rows, metric) for metric in _BARS} for key, rows in subjects.items()}
    scores = {key: found for key, found in scores.items() if any(found.values())}
    if not scores:
        return None
    names = list(dict.fromkeys(name for found in scores.values() for means in found.values() for name in means))
    titles = panel_titles(scores)
    figure, panels = panel_grid(scores)
    for axes, (key, found) in zip(panels, scores.items()):
        for metric, (label, colour, hatch, offset) in _BARS.items():
            places = [names.index(name) + offset for name in found[metric]]
            means = found[metric].values()
            axes.bar(
                places,
                [mean.value for mean in means],
                0.38,
                yerr=[mean.error for mean in means],
                color=colour,
                hatch=hatch,
                ec="white",
                ecolor=INK,
                label=label,
            )
        axes.set_title(titles[key], fontsize=9, color=INK)
        axes.axhline(0, color=INK, linewidth=0.8)
    figure.supylabel("cosine with the true change", fontsize=9, color=INK)
    panels[0].set_ylim(top=1.05)
    name_ticks(panels, names)
    add_legend(figure, panels)
    told = "; ".join(
        f"{titles[key]}: " + ", ".join(f"{name} {mean.value:.2f}" for name, mean in found["alignment_mean"].items())
        for key, found in scores.items()
    )
    return Drawing(
        "alignment",
        figure,
        f"Bars of the alignment of each CAV. Of the mean change: {told}.",
        "Cosine between each CAV and what inserting the artifact does to the activations (1 is perfect). Lines: one "
        "standard error.",
    )
