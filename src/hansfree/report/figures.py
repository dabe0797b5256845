"""How well the directions fit: the alignment of every CAV."""

from __future__ import annotations

import math

from hansfree.report.reading import Results, spread_of
from hansfree.report.style import BLUE, INK, ORANGE, Drawing, new_figure, quiet_axes

# label, colour, hatch (the bars are told apart in grey too), place beside the CAV's name
_ALIGNMENTS = {
    "alignment_sample": ("s, per image", BLUE, "", -0.19),
    "alignment_mean": ("s\N{COMBINING MACRON}, of the mean", ORANGE, "///", 0.19),
}


def draw_alignment(results: Results) -> Drawing | None:
    """Draw how well each CAV points along what the artifact does to the activations: s and its mean, s-bar."""
    scored = [row for row in results.rows if row.metric in _ALIGNMENTS and math.isfinite(row.value)]
    rows = {(row.method.removeprefix("cav:"), row.metric): row for row in scored}
    names = list(dict.fromkeys(name for name, _ in rows))
    if not names:
        return None
    figure = new_figure(height=0.9 + 0.5 * len(names))
    (axes,) = quiet_axes(figure)
    for metric, (label, colour, hatch, offset) in _ALIGNMENTS.items():
        found = {place + offset: rows[name, metric] for place, name in enumerate(names) if (name, metric) in rows}
        axes.barh(
            list(found), [r.value for r in found.values()], 0.36, color=colour, hatch=hatch, ec="white", label=label
        )
        for place, row in found.items():
            error = spread_of(row)
            axes.errorbar(row.value, place, xerr=error, ecolor=INK, elinewidth=1.4)
            axes.text(max(row.value, 0) + error + 0.01, place, f"{row.value:.2f}", va="center", fontsize=8, color=INK)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(min(0.0, *(row.value - 0.02 for row in rows.values())), 1.08)
    axes.set_xlabel("cosine with the true change of the activations (1 is perfect)")
    axes.grid(axis="y", visible=False)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    told = "; ".join(f"{name}, {_ALIGNMENTS[metric][0]}: {row.value:.2f}" for (name, metric), row in rows.items())
    return Drawing(
        "alignment",
        figure,
        f"Bars of the alignment of each CAV. {told}.",
        "How well each direction matches what inserting the artifact really does to the activations: 1 is the same "
        "direction, 0 is at right angles. s is the cosine with the change of each single image, averaged over the "
        "images; s\N{COMBINING MACRON} is the cosine with the mean of these changes, from which what differs between "
        "the images is gone. Lines: one standard error.",
    )
