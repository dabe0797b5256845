"""Figures over all strengths: what a correction costs, and what it wins."""

from __future__ import annotations

import math

from hansfree.report.reading import Results, Variant
from hansfree.report.style import ALARM, INK, Drawing, new_figure, quiet_axes, show_percent, style_of
from hansfree.results import Row

_MOST_COLUMNS = 4  # panels side by side, so that their titles have room
_ACCURACIES = ("balanced_accuracy", "accuracy")  # the first that a run has
Pair = tuple[Row, Row]  # the same model without and with the artifact


def draw_strengths(results: Results) -> Drawing | None:
    """Draw accuracy with and without the artifact against the strength, one panel per method."""
    rows = paths_of(results)
    if rows is None:
        return None
    name, points = rows
    # a strength of 0 has no place on a logarithmic axis
    paths = {v: [(c, b) for c, b in pairs if c.strength is not None and c.strength > 0] for v, pairs in points.items()}
    paths = {variant: pairs for variant, pairs in paths.items() if len(pairs) > 1}
    if not paths:
        return None
    columns, n_rows = min(len(paths), _MOST_COLUMNS), math.ceil(len(paths) / _MOST_COLUMNS)
    figure = new_figure(height=3.0 * n_rows)
    panels = quiet_axes(figure, rows=n_rows, columns=columns)
    for axes, (variant, pairs) in zip(panels, paths.items()):
        colour, marker = style_of(variant.method)
        finite = [pair for pair in pairs if not any(map(results.has_diverged, pair))]
        strengths = [clean.strength or 0 for clean, _ in finite]
        axes.plot(strengths, [b.value for _, b in finite], "-", color=colour, marker=marker, markersize=4)
        axes.plot(strengths, [c.value for c, _ in finite], "--", color=colour, linewidth=1.2, alpha=0.8)
        for clean, biased in finite:
            if clean.chosen:
                axes.axvline(clean.strength or 0, color=INK, linewidth=1, linestyle=":", zorder=0)
                axes.plot(clean.strength or 0, biased.value, marker=marker, markersize=10, color=colour, mec="white")
        for strength in (c.strength or 0 for c, b in pairs if (c, b) not in finite):
            axes.plot(strength, 0.03, "x", color=ALARM, transform=axes.get_xaxis_transform(), clip_on=False)
        axes.set_xscale("log")
        axes.set_title(variant.title(paths).replace(" along ", "\nalong "), fontsize=10, color=INK)
        axes.set_xlabel("strength")
    for axes in panels[len(paths) :]:
        axes.remove()
    for axes in panels[::columns]:
        axes.set_ylabel(name)
    show_percent(panels[0].yaxis)
    told = "; ".join(
        f"{v.title(paths)}: {pairs[0][0].strength:.3g} to {pairs[-1][0].strength:.3g}" for v, pairs in paths.items()
    )
    return Drawing(
        "strengths",
        figure,
        f"Curves of {name.lower()} over the strength, test images. Strengths of {told}.",
        "Solid: with the artifact; dashed: without (test images). The dotted line and the large mark "
        "show the chosen strength; a red cross is a strength that diverged.",
    )


def paths_of(results: Results) -> tuple[str, dict[Variant, list[Pair]]] | None:
    """Return the accuracy's name and, by variant, its pairs in the order of the strengths."""
    if results.is_one_sided:
        return None  # plain accuracy with the artifact would show the shortcut as the best of models
    for metric in _ACCURACIES:
        biased = {(Variant.of(row), row.strength): row for row in results.of_metric(f"{metric}_biased")}
        points: dict[Variant, list[Pair]] = {}
        for row in results.of_metric(f"{metric}_clean"):
            if (Variant.of(row), row.strength) in biased:
                points.setdefault(Variant.of(row), []).append((row, biased[Variant.of(row), row.strength]))
        for pairs in points.values():
            pairs.sort(key=lambda pair: pair[0].strength or 0)
        if points:
            order = [variant for variant in results.methods() if variant in points]
            return metric.replace("_", " ").capitalize(), {variant: points[variant] for variant in order}
    return None
