"""The tournament as a picture: accuracy without against accuracy with the artifact, and who is beaten by nobody."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hansfree.report.style import FAINT, INK, OTHER_STYLE, Drawing, style_of
from hansfree.reproduce.figures.panels import add_legend, panel_grid, panel_titles, show_fine_percent
from hansfree.reproduce.keys import SubjectKey
from hansfree.tournament import (
    ALONG_PAIRS,
    AUGMENTED,
    BALANCED_REFERENCE,
    BIASED,
    ELECTED,
    ENTRANTS,
    PAIRING,
    PAPER,
    REFERENCE,
    DrawAnswers,
    Match,
)

Point = tuple[float, float]
_NAMED = {  # what readers call them, and whose colour and marker they have
    BIASED: ("biased model", style_of(BIASED)),
    REFERENCE: ("clean-trained", style_of(REFERENCE)),
    BALANCED_REFERENCE: ("clean-trained, solved, balanced", (style_of(REFERENCE)[0], "*")),
    PAPER: ("RR-ClArC, the paper's", style_of(PAPER)),
    ALONG_PAIRS: ("RR-ClArC of pairs, solved, balanced", OTHER_STYLE),
    AUGMENTED: ("augmented, solved, balanced", style_of(ENTRANTS[AUGMENTED].method)),
    PAIRING: ("logit pairing, solved, balanced", style_of(ENTRANTS[PAIRING].method)),
}


def draw_tournament(
    matches: Mapping[SubjectKey, Mapping[str, Match]], *, labels: Mapping[SubjectKey, np.ndarray]
) -> Drawing:
    """Draw every entrant as a point, means over draws; the line joins those that no other beats in both."""
    figure, panels = panel_grid(list(matches), height=2.9)
    titles = panel_titles(matches)
    for axes, (key, found) in zip(panels, matches.items()):
        points = {name: _point(match.answers(found[BIASED]), labels[key]) for name, match in found.items()}
        front = pareto({name: point for name, point in points.items() if name in ENTRANTS})
        axes.plot(*zip(*front), color=FAINT, linewidth=1.5, zorder=1)
        for name, point in points.items():
            if name in _NAMED or name == ELECTED:
                continue
            axes.plot(*point, "o", color="#BBBBBB", markersize=5, mew=0, label="other entrants", zorder=2)
        for name, (title, (colour, marker)) in _NAMED.items():
            if name in points:
                axes.plot(*points[name], marker, color=colour, markersize=9, mec="white", label=title, zorder=3)
        if ELECTED in points:  # a ring, as one of its candidates may lie inside
            axes.plot(*points[ELECTED], "o", color=INK, markersize=13, fillstyle="none", label="hansfree's default")
        axes.set_title(titles[key], fontsize=9, color=INK)
    show_fine_percent(panels[0].xaxis, panels[0].yaxis)
    figure.supxlabel("Balanced accuracy, without the artifact", fontsize=9, color=INK)
    figure.supylabel("Balanced accuracy, with the artifact", fontsize=9, color=INK)
    add_legend(figure, panels)
    return Drawing(
        "tournament",
        figure,
        f"All entrants by balanced accuracy without and with the artifact, for {', '.join(titles.values())}.",
        "Means over draws on the test images. The line joins the entrants that no other beats in both accuracies.",
    )


def pareto(points: Mapping[str, Point]) -> list[Point]:
    """Return the points that no other beats in both, from left to right."""
    front: list[Point] = []
    for point in sorted(set(points.values()), reverse=True):
        if not front or point[1] > front[-1][1]:
            front.append(point)
    return front[::-1]


def _point(answers: DrawAnswers, labels: np.ndarray) -> Point:
    return (
        float(answers.score(labels, "balanced_accuracy_clean").mean()),
        float(answers.score(labels, "balanced_accuracy_biased").mean()),
    )
