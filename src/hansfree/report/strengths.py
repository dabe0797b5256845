"""Figures over all strengths: what a correction costs, and what it wins."""

from __future__ import annotations

from matplotlib.axes import Axes

from hansfree.report.numbers import percent
from hansfree.report.reading import ORIGINAL, Results, Variant
from hansfree.report.style import ALARM, FAINT, INK, Drawing, new_figure, quiet_axes, show_percent, style_of
from hansfree.results import Row

_ACCURACIES = ("balanced_accuracy", "accuracy")  # the first that a run has
_MOST_LOST = 0.1  # of accuracy without the artifact: who loses more is no choice, and gets no room on the axes
Pair = tuple[Row, Row]  # the same model without and with the artifact


def draw_tradeoff(results: Results) -> Drawing | None:
    """Draw accuracy with the artifact against accuracy without it, for every method and strength."""
    rows = _paths(results)
    if rows is None:
        return None
    name, points = rows
    figure = new_figure(width=6.4, height=5.2)
    (axes,) = quiet_axes(figure)
    axes.axline((0.5, 0.5), slope=1, color=FAINT, linewidth=1.2, zorder=0)
    for variant, pairs in points.items():
        colour, marker = style_of(variant.method)
        title = variant.title(points)
        pairs = [pair for pair in pairs if not any(map(results.has_diverged, pair))]
        axes.plot(*_values(pairs), "-", color=colour, alpha=0.35, linewidth=1)
        others = [pair for pair in pairs if not pair[0].chosen]
        axes.plot(*_values(others), marker, color=colour, alpha=0.45, markersize=4.5, mew=0)
        taken = [pair for pair in pairs if pair[0].chosen]
        axes.plot(*_values(taken), marker, color=colour, markersize=11, mec="white", label=title, zorder=3)
    outside = _set_limits(axes, results, points)
    axes.set_xlabel(f"{name}, without the artifact")
    axes.set_ylabel(f"{name}, with the artifact")
    show_percent(axes.xaxis, axes.yaxis)
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)
    told = "; ".join(
        f"{v.title(points)}: {percent(c.value)} without, {percent(b.value)} with"
        for v, pairs in points.items()
        for c, b in pairs
        if c.chosen and not (results.has_diverged(c) or results.has_diverged(b))
    )
    return Drawing(
        "tradeoff",
        figure,
        f"Scatter of {name.lower()} with the artifact against that without it, test images. Chosen: {told}.",
        "All strengths on the test images; large marks are the chosen ones. "
        + (
            "On the grey line the artifact costs nothing; up and to the right is better."
            if results.is_inserted
            else "The images with the artifact are others than those without, and need not be as hard: off the grey "
            "line, not all is the artifact's doing. Up and to the right is better."
        )
        + outside,
    )


def _set_limits(axes: Axes, results: Results, points: dict[Variant, list[Pair]]) -> str:
    """Let the axes span what could be chosen; say how many strengths lie outside, empty if none does.

    One collapsed model would press all others into a corner, and so would the point that the grey line is drawn from.
    """
    pairs = [pair for found in points.values() for pair in found if not any(map(results.has_diverged, pair))]
    original = next((c.value for v, found in points.items() if v.method == ORIGINAL for c, _ in found), None)
    shown = [(c, b) for c, b in pairs if c.chosen or original is None or c.value >= original - _MOST_LOST]
    if not shown:
        return ""
    ends = []
    for values in _values(shown):
        margin = max(0.05 * (max(values) - min(values)), 0.005)
        ends.append((min(values) - margin, max(values) + margin))
    axes.set_xlim(*ends[0])
    axes.set_ylim(*ends[1])
    is_inside = [all(low <= row.value <= high for row, (low, high) in zip(pair, ends)) for pair in pairs]
    n = is_inside.count(False)
    if n == 0:
        return ""
    lies, loses = ("strength lies", "it loses") if n == 1 else ("strengths lie", "they lose")
    return f" {n} {lies} outside the axes: {loses} more than {100 * _MOST_LOST:g} points without the artifact."


def draw_strengths(results: Results) -> Drawing | None:
    """Draw accuracy with and without the artifact against the strength, one panel per method."""
    rows = _paths(results)
    if rows is None:
        return None
    name, points = rows
    # a strength of 0 has no place on a logarithmic axis
    paths = {v: [(c, b) for c, b in pairs if c.strength is not None and c.strength > 0] for v, pairs in points.items()}
    paths = {variant: pairs for variant, pairs in paths.items() if len(pairs) > 1}
    if not paths:
        return None
    figure = new_figure(height=3.0)
    panels = quiet_axes(figure, columns=len(paths))
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
        axes.set_title(variant.title(paths), fontsize=10, color=INK)
        axes.set_xlabel("strength")
    panels[0].set_ylabel(name)
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


def _paths(results: Results) -> tuple[str, dict[Variant, list[Pair]]] | None:
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


def _values(pairs: list[Pair]) -> tuple[list[float], list[float]]:
    return [clean.value for clean, _ in pairs], [biased.value for _, biased in pairs]
