"""Tables and the figure of a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from benchmarks.comparison.entries import (
    AUGMENTED,
    BALANCED_CLEAN_TRAINED,
    CANDIDATES,
    ENTRIES,
    PAIR_DIRECTION,
    PAIRING,
    PAPER,
    PICKED,
)
from benchmarks.comparison.scoring import MEASURES, Answers, Comparison, EntryResult, Measure, compare
from hansfree._internal.statistics import RESAMPLES
from hansfree.corrections.selection import BalancedRule
from hansfree.evaluation.results import CLEAN_TRAINED, ORIGINAL
from hansfree.report import describe_reason, markdown_table
from hansfree.report.figures import FAINT, INK, OTHER_STYLE, Drawing, show_percent, style_of
from hansfree_paper.aggregate import SubjectKey
from hansfree_paper.figures import add_legend, panel_grid, panel_titles
from hansfree_paper.tables import paragraphs

EntryResults = Mapping[str, EntryResult]  # by entry

_TITLES = {
    ORIGINAL: "Biased model",
    CLEAN_TRAINED: "Clean-trained",
    BALANCED_CLEAN_TRAINED: "Clean-trained, converged, balanced",
    PICKED: "hansfree's default",
}

_BASELINES = {
    CLEAN_TRAINED: "against clean-trained",
    BALANCED_CLEAN_TRAINED: "against converged, balanced",
    PAPER: "against the paper's",
    PICKED: "against hansfree's default",
}  # the columns of differences

DASH = "\N{EN DASH}"

_BIASED_SCORE: Measure = "balanced_accuracy_biased"

_HEADS = {
    "balanced_accuracy_clean": "balanced, clean",
    "balanced_accuracy_biased": "balanced, biased",
    "flip_rate": "flip rate",
}


def write_comparison(results: Mapping[SubjectKey, EntryResults], *, labels: Mapping[SubjectKey, np.ndarray]) -> str:
    """Return all tables as Markdown."""
    answers = {key: collect_answers(found) for key, found in results.items()}
    parts = [
        "All entries share training images, validation images and selection rule: "
        f"{describe_reason(BalancedRule().summary())}. Where no strength is admissible, the original model is scored.",
        "## Wins, ties and losses",
        f"By balanced accuracy with the artifact{_over(len(results))}:",
        _summary(answers, labels, _BIASED_SCORE),
        "By flip rate, the share of test images whose prediction changes when the artifact is inserted (lower is "
        "better; not used for selection; a constant prediction has none):",
        _summary(answers, labels, "flip_rate"),
        "Won / level / lost: the 95 % interval of the paired difference lies on the better side of zero, includes "
        f"zero, or lies on the worse side ({RESAMPLES:,} bootstrap samples over test images and resamples). *Over "
        "budget*: resamples in which no strength, or not the only model of the method, was admissible.",
    ]
    for key, found in results.items():
        parts += [f"## {key.title}", _setting(found, answers[key], labels[key])]
    parts.append(
        "Means over resamples in %, ± standard error over resamples. *Against*: the paired difference in balanced "
        "accuracy with the artifact, in points, with its 95 % interval. *Validation*: the same accuracy on "
        "validation images."
    )
    if any(PICKED in found for found in results.values()):
        parts.append(
            f"*{entry_title(PICKED)}* where the artifact can be inserted: per resample the candidate with the better "
            f"validation score of {' and '.join(map(entry_title, CANDIDATES))}."
        )
    return paragraphs(*parts)


def collect_answers(results: EntryResults) -> dict[str, Answers]:
    """Return the predictions of every entry; those of the original model where no strength was admissible."""
    return {name: result.answers(results[ORIGINAL]) for name, result in results.items()}


def entry_title(name: str) -> str:
    """Return the title of an entry in tables."""
    return _TITLES.get(name) or ENTRIES[name].title


def has_direction(name: str) -> bool:
    """Return whether an entry corrects along a direction."""
    return name in ENTRIES and ENTRIES[name].has_direction


def _summary(
    answers: Mapping[SubjectKey, Mapping[str, Answers]], labels: Mapping[SubjectKey, np.ndarray], measure: Measure
) -> str:
    better = -1 if measure == "flip_rate" else 1
    names = [name for name in (*ENTRIES, PICKED) if all(name in found for found in answers.values())]
    rivals = [
        rival for rival in (*_BASELINES, PAIR_DIRECTION, PAIRING) if all(rival in found for found in answers.values())
    ]
    lines = []
    for name in names:
        cells = [entry_title(name)]
        for rival in rivals:
            if name == rival:
                cells.append(DASH)
                continue
            signs = [compare(found[name], found[rival], labels[key], measure).sign for key, found in answers.items()]
            cells.append(f"{signs.count(better)} / {signs.count(0)} / {signs.count(-better)}")
        cells += [f"{100 * _mean(answers, labels, name, each):.1f}" for each in MEASURES]
        lines.append(cells)
    heads = ["entry", *(f"against {entry_title(rival)}" for rival in rivals)]
    return markdown_table([*heads, *_HEADS.values()], lines)


def _mean(
    answers: Mapping[SubjectKey, Mapping[str, Answers]],
    labels: Mapping[SubjectKey, np.ndarray],
    name: str,
    measure: Measure,
) -> float:
    return float(np.mean([found[name].score(labels[key], measure).mean() for key, found in answers.items()]))


def _setting(results: EntryResults, answers: Mapping[str, Answers], labels: np.ndarray) -> str:
    baselines = [baseline for baseline in _BASELINES if baseline in results]
    lines = []
    for name, result in results.items():
        differences = [
            DASH if name == baseline else _points(compare(answers[name], answers[baseline], labels, _BIASED_SCORE))
            for baseline in baselines
        ]
        lines.append(
            [
                entry_title(name),
                *(_score(answers[name].score(labels, measure)) for measure in MEASURES),
                *differences,
                _validation(result, results[ORIGINAL]),
                _range(o.strength for o in result.completed.values()),
                _range(o.directions for o in result.completed.values()) if has_direction(name) else DASH,
                _budget(result),
            ]
        )
    heads = [
        "entry",
        *_HEADS.values(),
        *(_BASELINES[baseline] for baseline in baselines),
        "validation",
        "strengths",
        "directions",
        "over budget",
    ]
    return markdown_table(heads, lines)


def _over(settings: int) -> str:
    return "" if settings == 1 else f", over {settings} settings"


def _score(values: np.ndarray) -> str:
    if len(values) < 2:
        return f"{100 * values.mean():.1f}"
    return f"{100 * values.mean():.1f} ± {100 * values.std(ddof=1) / np.sqrt(len(values)):.1f}"


def _points(found: Comparison) -> str:
    return f"{100 * found.value:+.1f} ({100 * found.low:+.1f} to {100 * found.high:+.1f})"


def _validation(result: EntryResult, fallback: EntryResult) -> str:
    taken = [ours or theirs for ours, theirs in zip(result.outcomes, fallback.outcomes)]
    return f"{100 * np.mean([outcome.val_biased for outcome in taken if outcome]):.1f}"


def _range(values: Iterable[float | None]) -> str:
    found = sorted({value for value in values if value is not None})
    if not found:
        return DASH
    return f"{found[0]:g}" if len(found) == 1 else f"{found[0]:g} to {found[-1]:g}"


def _budget(result: EntryResult) -> str:
    over = sum(1 for outcome in result.outcomes if outcome is None or outcome.rejection)
    return f"{over} of {len(result.outcomes)}" if over else ""


ParetoPoint = tuple[float, float]

_NAMED = {  # title, colour and marker
    ORIGINAL: ("biased model", style_of(ORIGINAL)),
    CLEAN_TRAINED: ("clean-trained", style_of(CLEAN_TRAINED)),
    BALANCED_CLEAN_TRAINED: ("clean-trained, converged, balanced", (style_of(CLEAN_TRAINED)[0], "*")),
    PAPER: ("RR-ClArC, the paper's", style_of(PAPER)),
    PAIR_DIRECTION: ("RR-ClArC of pairs, converged, balanced", OTHER_STYLE),
    AUGMENTED: ("augmented, converged, balanced", style_of(ENTRIES[AUGMENTED].method)),
    PAIRING: ("logit pairing, converged, balanced", style_of(ENTRIES[PAIRING].method)),
}


def plot_comparison(
    results: Mapping[SubjectKey, Mapping[str, EntryResult]], *, labels: Mapping[SubjectKey, np.ndarray]
) -> Drawing:
    """Plot every entry as a point (means over resamples), and the Pareto front."""
    figure, panels = panel_grid(list(results), height=2.9)
    titles = panel_titles(results)
    for axes, (key, found) in zip(panels, results.items()):
        points = {name: _point(result.answers(found[ORIGINAL]), labels[key]) for name, result in found.items()}
        front = pareto({name: point for name, point in points.items() if name in ENTRIES})
        axes.plot(*zip(*front), color=FAINT, linewidth=1.5, zorder=1)
        for name, point in points.items():
            if name in _NAMED or name == PICKED:
                continue
            axes.plot(*point, "o", color="#BBBBBB", markersize=5, mew=0, label="other entries", zorder=2)
        for name, (title, (colour, marker)) in _NAMED.items():
            if name in points:
                axes.plot(*points[name], marker, color=colour, markersize=9, mec="white", label=title, zorder=3)
        if PICKED in points:  # a ring: one of its candidates may lie inside
            axes.plot(*points[PICKED], "o", color=INK, markersize=13, fillstyle="none", label="hansfree's default")
    show_percent(panels[0].xaxis, panels[0].yaxis)
    figure.supxlabel("Balanced accuracy, without the artifact", fontsize=9, color=INK)
    figure.supylabel("Balanced accuracy, with the artifact", fontsize=9, color=INK)
    add_legend(figure, panels)
    return Drawing(
        "comparison",
        figure,
        f"All entries by balanced accuracy without and with the artifact, for {', '.join(titles.values())}.",
        "Means over resamples on the test images. The line is the Pareto front.",
    )


def pareto(points: Mapping[str, ParetoPoint]) -> list[ParetoPoint]:
    """Return the Pareto front, from left to right."""
    front: list[ParetoPoint] = []
    for point in sorted(set(points.values()), reverse=True):
        if not front or point[1] > front[-1][1]:
            front.append(point)
    return front[::-1]


def _point(answers: Answers, labels: np.ndarray) -> ParetoPoint:
    return (
        float(answers.score(labels, "balanced_accuracy_clean").mean()),
        float(answers.score(labels, "balanced_accuracy_biased").mean()),
    )
