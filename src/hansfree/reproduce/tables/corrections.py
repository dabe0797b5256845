"""Table 1 of the paper, and the detailed tables with all metrics and errors behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hansfree.metrics import Metric
from hansfree.report.numbers import MISSING, unit_of, write_stderr, write_value
from hansfree.report.reading import method_title
from hansfree.report.tables import Mark, marks_of
from hansfree.report.usable import Kind, kind_of
from hansfree.reproduce.averages import PAPER_METHODS, Average, as_results, chosen_scores, paper_place, write_average
from hansfree.reproduce.keys import Facts, FactsBySubject, SubjectKey, Subjects
from hansfree.reproduce.tables.departures import write_departures
from hansfree.reproduce.tables.markdown import NOT_RUN, markdown_table, paragraphs
from hansfree.results import Row

DETAILS = (
    "accuracy_clean",
    "accuracy_biased",
    "balanced_accuracy_clean",
    "balanced_accuracy_biased",
    "flip_rate",
    "tcav_positions",  # TCAV as the paper counts it
    "tcav",
    "tcav_sensitivity",
    "artifact_relevance",
)
_TABLE1 = {"accuracy_clean": "clean", "accuracy_biased": "biased", "tcav_positions": "TCAV, positions"}
_NOTES = {"failed": "failed", "chance": "answers no better than chance"}
_OUT = "\N{DAGGER}"  # beside the scores of a model that does not compete
_LEGEND = (
    "**Bold**: nearest to the ideal (accuracy 100, TCAV 50, all others 0) of the methods that compete; *italic*: "
    "within one standard error of it."
)
_NO_STRENGTH = "no strength"
_TCAVS = (
    "TCAV, positions is counted as in the paper's tables: the share of positive among the non-zero derivatives over "
    "all positions; TCAV, in detail below, is the share of images whose derivative, summed over positions, is positive."
)
_ERROR = "± is the standard error from the test images."
_ERRORS = (
    "± is the standard error from the test images as one seed has it (all seeds are scored on the same images, so it "
    "does not shrink with their number); in brackets the standard deviation over the seeds."
)


@dataclass(frozen=True)
class _Line:
    """A method in one subject."""

    title: str
    method: str
    scores: Mapping[str, Average]
    marks: Mapping[str, Mark]
    note: str = ""  # why it does not compete


def write_table1(subjects: Subjects, *, facts: FactsBySubject | None = None) -> str:
    """Return the paper's Table 1: models and methods down, biases across, each with clean, biased and TCAV in %."""
    lines = {key: _lines(rows, (facts or {}).get(key, Facts())) for key, rows in subjects.items()}
    biases = list(dict.fromkeys((key.data, key.artifact) for key in subjects))
    models = list(dict.fromkeys(key.model for key in subjects))
    is_one_data = len({data for data, _ in biases}) == 1
    names = [artifact if is_one_data else f"{artifact} ({data})" for data, artifact in biases]
    heads = ["model", "method", *(f"{name}: {head}" for name in names for head in _TABLE1.values())]
    body = []
    for model in models:
        found = {(key.data, key.artifact): lines[key] for key in subjects if key.model == model}
        by_title = {bias: {line.title: line for line in of_bias} for bias, of_bias in found.items()}
        for title in dict.fromkeys(line.title for of_bias in found.values() for line in of_bias):
            cells = [
                cell
                for bias in biases
                for cell in _short_cells(by_title.get(bias, {}).get(title), is_there=bias in found)
            ]
            body.append([model, title, *cells])
    error = "of the test images and of the seeds together" if _is_repeated(subjects) else "of the test images"
    return paragraphs(
        markdown_table(heads, body),
        f"All in %, ± the standard error {error}. {_LEGEND} {_OUT}: failed or answers no better than chance; "
        f"{_NO_STRENGTH}: none was fit to be taken.",
        _TCAVS,
    )


def write_details(subjects: Subjects, *, facts: FactsBySubject | None = None) -> str:
    """Return one table per subject with every metric and its errors, and the paper's numbers beside ours."""
    parts = [_details(key, rows, (facts or {}).get(key, Facts())) for key, rows in subjects.items()]
    errors = _ERRORS if _is_repeated(subjects) else _ERROR
    return paragraphs(*parts, f"{_LEGEND} {errors}", write_departures(facts))


def _is_repeated(subjects: Subjects) -> bool:
    """Tell whether any score is a mean over several seeds."""
    found = (chosen_scores(rows) for rows in subjects.values())
    return any(mean.repeats > 1 for scores in found for of in scores.values() for mean in of.values())


def _details(key: SubjectKey, rows: Sequence[Row], facts: Facts) -> str:
    lines = _lines(rows, facts)
    published = facts.published.scores if facts.published else {}
    in_paper = {metric for model, _, metric in published if model == key.model}
    metrics = [name for name in DETAILS if name in in_paper or any(name in line.scores for line in lines)]
    heads = [f"{key.title}: method"]
    for name in metrics:
        heads += [f"{Metric.named(name).label} [{unit_of(name)}]", *(["paper"] if name in in_paper else [])]
    body = []
    for line in lines:
        cells = [f"{line.title} ({line.note})" if line.note else line.title]
        for name in metrics:
            cells.append(_emphasised(write_average(name, line.scores.get(name)), line.marks.get(name, "")))
            if name in in_paper:
                cells.append(_published(name, published.get((key.model, line.method, name))))
        body.append(cells)
    if facts.majority_rate is not None:
        body.append(["Majority rate", *_majority(metrics, in_paper, facts)])
    return markdown_table(heads, body)


def _lines(rows: Sequence[Row], facts: Facts) -> list[_Line]:
    """Return every variant that was run and every method of the paper that was not, in the paper's order."""
    results, scores = as_results(rows, facts), chosen_scores(rows)
    variants = results.methods()
    marks = {name: marks_of(results, name) for name in DETAILS}
    lines = []
    for variant in variants:
        lines.append(
            _Line(
                variant.title(variants),
                variant.method,
                scores.get(variant, {}),
                {name: marks[name].get(variant, "") for name in DETAILS},
                _note(kind_of(results, variant), facts.reasons.get(variant.method, "")),
            )
        )
    run = {line.method for line in lines}
    lines += [_Line(method_title(name), name, {}, {}, NOT_RUN) for name in PAPER_METHODS if name not in run]
    return sorted(lines, key=lambda line: paper_place(line.method))


def _short_cells(line: _Line | None, *, is_there: bool) -> list[str]:
    if not is_there or line is None:
        return [MISSING] * len(_TABLE1)
    if line.note == NOT_RUN:
        return [NOT_RUN, *[MISSING] * (len(_TABLE1) - 1)]
    if not line.scores:
        return [_NO_STRENGTH, *[MISSING] * (len(_TABLE1) - 1)]
    found = {name: line.scores.get(name) for name in _TABLE1}
    sign = _OUT if line.note else ""
    return [
        _emphasised(MISSING if mean is None else _short(name, mean) + sign, line.marks.get(name, ""))
        for name, mean in found.items()
    ]


def _short(metric: str, mean: Average) -> str:
    """Return a score with its whole error, of images and seeds in one number."""
    if not math.isfinite(mean.value):
        return "NaN"
    return f"{write_value(metric, mean.value)} ± {write_stderr(metric, mean.error)}"


def _note(kind: Kind, reason: str) -> str:
    """Say why a method does not compete: a failed one has no strength that could be taken, and a reason for that."""
    note = _NOTES.get(kind, "")
    return f"{note}: {reason}" if kind == "failed" and reason else note


def _emphasised(text: str, mark: Mark) -> str:
    return {"best": f"**{text}**", "near": f"*{text}*", "": text}[mark]


def _published(metric: str, found: tuple[float, float] | None) -> str:
    return f"{write_value(metric, found[0])} ± {write_stderr(metric, found[1])}" if found else MISSING


def _majority(metrics: Sequence[str], in_paper: set[str], facts: Facts) -> list[str]:
    """Return what always naming the largest class scores: what plain accuracy is worth here."""
    known = dict.fromkeys(("accuracy_clean", "accuracy_biased"), facts.majority_rate)
    known |= dict.fromkeys(("balanced_accuracy_clean", "balanced_accuracy_biased"), facts.chance_level)
    cells = []
    for name in metrics:
        rate = known.get(name)
        cells += [MISSING if rate is None else write_value(name, rate), *([MISSING] if name in in_paper else [])]
    return cells
