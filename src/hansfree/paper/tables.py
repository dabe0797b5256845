"""Tables of the paper's experiments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from hansfree.evaluation import FIRST, ModelStatus, Row, method_title, status_of
from hansfree.metrics import Metric
from hansfree.paper.aggregate import (
    GROUPS,
    PAPER_METHODS,
    SIGNIFICANT,
    Average,
    Facts,
    FactsBySubject,
    SubjectKey,
    Subjects,
    as_results,
    average,
    cav_scores,
    change_titles,
    changes_of,
    chosen_scores,
    final_rows,
    method_scores,
    paired_lead,
    paper_place,
    seconds_of,
    unseeded,
    write_average,
)
from hansfree.report import MISSING, Mark, markdown_table, marks_of, unit_of, write_points, write_stderr, write_value

__all__ = ["NOT_RUN", "markdown_table", "paragraphs"]


NOT_RUN = "not run"


def paragraphs(*parts: str) -> str:
    """Return the parts that are not empty, with a blank line between them."""
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def write_departures(facts: FactsBySubject | None) -> str:
    """Return a sentence per way in which subjects with published numbers depart from the paper; empty where none do."""
    subjects: dict[tuple[str, ...], list[str]] = {}
    for key, known in (facts or {}).items():
        if _is_published(key, known) and known.departures:
            subjects.setdefault(known.departures, []).append(key.title)
    return "\n\n".join(
        f"Not the paper's setting ({', '.join(titles)}): {'; '.join(departures)}."
        for departures, titles in subjects.items()
    )


def _is_published(key: SubjectKey, facts: Facts) -> bool:
    return facts.published is not None and any(model == key.model for model, *_ in facts.published.scores)


_NOTE = "Accuracy in % ± standard error over the images of the group, with the first seed."


def write_groups(subjects: Subjects, facts: Mapping[SubjectKey, Facts] | None = None) -> str:
    """Return a line per subject and group, a column per method, in %."""
    found = {
        key: average((row for row in rows if row.group is not None), lambda row: (row.group, row.artifact, row.method))
        for key, rows in subjects.items()
    }
    methods = list(dict.fromkeys(method for means in found.values() for _, _, method in means))
    body: list[Sequence[str]] = []
    for key, means in found.items():
        names = (facts or {}).get(key, Facts()).class_names
        for group, artifact in dict.fromkeys((group, artifact) for group, artifact, _ in means):
            of_group = [means.get((group, artifact, method)) for method in methods]
            title = names[group] if group is not None and group < len(names) else f"class {group}"
            n = next((mean.n for mean in of_group if mean is not None), None)
            cells = [write_average("accuracy_clean", mean) for mean in of_group]
            body.append([key.title, f"{title}, {artifact}", "" if n is None else str(n), *cells])
    return f"{markdown_table(['subject', 'group', 'images', *map(method_title, methods)], body)}\n\n{_NOTE}\n"


_METRICS = (
    "accuracy_clean",
    "accuracy_biased",
    "balanced_accuracy_clean",
    "balanced_accuracy_biased",
    "flip_rate",
    "tcav",
)

_VARIANTS_NOTE = "All in %, on the test images, ± standard error. Strength none: no strength of it was fit to be taken."


def write_variants(subjects: Subjects) -> str:
    """Return the scores of every variant that was run; one without a strength fit to be taken has none."""
    body: list[Sequence[str]] = []
    for key, rows in subjects.items():
        chosen = chosen_scores(rows)
        variants = dict.fromkeys(unseeded(row) for row in final_rows(rows) if not row.method.startswith("cav:"))
        for variant in variants:
            scores = chosen.get(variant, {})
            strength = next((f"{mean.strength:g}" for mean in scores.values() if mean.strength is not None), "")
            cells = [write_average(metric, scores.get(metric)) for metric in _METRICS]
            body.append([key.title, variant.title(variants), strength if variant in chosen else "none", *cells])
    heads = ["subject", "variant", "strength", *(Metric.named(metric).label for metric in _METRICS)]
    return f"{markdown_table(heads, body)}\n\n{_VARIANTS_NOTE}\n"


_ALIGNMENTS_METRICS = {"alignment_sample": "s", "alignment_mean": "s̄", "cav_auc": "AUC"}

_ALIGNMENTS_NOTE = (
    "Cosine between the CAV and the change of the pooled activations when the artifact is put in: mean over the test "
    "images (s), and of the mean change (s̄). AUC: how well the score along the CAV tells held-out images with the "
    "artifact from those without. ± is the standard error over the images; best alignment in bold."
)


def write_alignments(subjects: Subjects) -> str:
    """Return the quality of every CAV, a line per subject and CAV."""
    body: list[Sequence[str]] = []
    for key, rows in subjects.items():
        found = {metric: cav_scores(rows, metric) for metric in _ALIGNMENTS_METRICS}
        best = {metric: max((mean.value for mean in means.values()), default=None) for metric, means in found.items()}
        for name in dict.fromkeys(name for means in found.values() for name in means):
            cells = [_cell(means.get(name), best[metric]) for metric, means in found.items()]
            body.append([key.title, name, *cells])
    return f"{markdown_table(['subject', 'CAV', *_ALIGNMENTS_METRICS.values()], body)}\n\n{_ALIGNMENTS_NOTE}\n"


def _cell(mean: Average | None, best: float | None) -> str:
    if mean is None:
        return MISSING
    text = f"{mean.value:.3f}" + (f" ± {mean.stderr:.3f}" if mean.stderr is not None else "")
    return f"**{text}**" if mean.value == best else text


_CHANGES_NOTE = (
    "Change of the accuracy on clean test images against Vanilla, in points, over the classes that react most to the "
    "artifact (selected), as many others (random), and all, with the first seed. ± is the standard error over the "
    "same images; no strength: none was fit to be taken."
)


def write_changes(subjects: Subjects, *, facts: FactsBySubject | None = None) -> str:
    """Return the change on selected, random and all classes of every method."""
    body: list[Sequence[str]] = []
    for key, rows in subjects.items():
        changes = changes_of(rows)
        untaken = {unseeded(row) for row in final_rows(rows) if row.strength is not None} - changes.keys()
        titles = change_titles([*changes, *untaken], (facts or {}).get(key, Facts()).class_names)
        for variant, means in changes.items():
            body.append([key.title, titles[variant], *(_points(means.get(group)) for group in GROUPS)])
        body += [[key.title, title, "no strength", MISSING, MISSING] for title in sorted(titles[v] for v in untaken)]
    return f"{markdown_table(['subject', 'method', *GROUPS], body)}\n\n{_CHANGES_NOTE}\n"


def _points(mean: Average | None) -> str:
    if mean is None:
        return MISSING
    stderr = write_stderr("accuracy_clean", mean.stderr)
    return write_points(mean.value) + (f" ± {stderr}" if stderr else "")


_PATH_METRICS = (
    "accuracy_clean",
    "accuracy_biased",
    "balanced_accuracy_clean",
    "balanced_accuracy_biased",
    "tcav",  # by image: positions are counted at the chosen strength only
)

_PATH_NOTE = (
    "All in %, on the test images, ± standard error. **Bold**: the strength that the validation images chose. TCAV: "
    "share of images whose derivative along the direction, summed over positions, is positive. A line of zeros: the "
    "fine-tuning diverged at this strength, and a model without finite answers is right about nothing."
)


def write_path(subjects: Subjects) -> str:
    """Return the scores of Vanilla and of RR-ClArC at every strength, a line each."""
    body: list[Sequence[str]] = []
    for key, rows in subjects.items():
        final = [row for row in final_rows(rows) if row.method in ("vanilla", FIRST) and row.metric in _PATH_METRICS]
        means = average(final, lambda row: (row.method, row.strength, row.metric))
        chosen = {(row.method, row.strength) for row in final if row.chosen and row.strength is not None}
        lines = {(name, strength) for name, strength, _ in means}
        for name, strength in sorted(lines, key=lambda line: (line[0] == FIRST, line[1] or 0.0)):
            title = method_title(name) if strength is None else f"{strength:g}"
            cells = [write_average(metric, means.get((name, strength, metric))) for metric in _PATH_METRICS]
            body.append([key.title, f"**{title}**" if (name, strength) in chosen else title, *cells])
    heads = ["subject", f"strength of {method_title(FIRST)}", *(Metric.named(metric).label for metric in _PATH_METRICS)]
    return f"{markdown_table(heads, body)}\n\n{_PATH_NOTE}\n"


DIFFERENCES = ("accuracy_clean", "accuracy_biased", "balanced_accuracy_clean", "balanced_accuracy_biased")

_DIFFERENCES_NOTE = (
    f"{method_title(FIRST)} minus the method of the line on the same test images, in points: the difference of the "
    "means over the seeds, and its 95 % interval, of the images (paired, as the first seed has them) and of the seeds "
    f"together: {SIGNIFICANT:.3g} standard errors to each side (normal approximation). **Bold**: it leaves out 0."
)


def write_differences(subjects: Subjects, *, facts: FactsBySubject | None = None) -> str:
    """Return by how much RR-ClArC is ahead of every rival, with intervals; a line per subject and rival."""
    body: list[Sequence[str]] = []
    for key, rows in subjects.items():
        known, scores = (facts or {}).get(key, Facts()), method_scores(rows)
        for rival in sorted(scores.keys() - {FIRST}, key=paper_place):
            leads = [paired_lead(scores, known, FIRST, rival, metric) for metric in DIFFERENCES]
            if any(leads):
                body.append([key.title, method_title(rival), *map(_interval, leads)])
    if not body:
        return f"No image was answered both by {method_title(FIRST)} and by a rival.\n"
    heads = ["subject", f"{method_title(FIRST)} minus", *(Metric.named(metric).label for metric in DIFFERENCES)]
    return f"{markdown_table(heads, body)}\n\n{_DIFFERENCES_NOTE}\n"


def _interval(lead: tuple[float, float] | None) -> str:
    if lead is None:
        return MISSING
    difference, half = lead[0], SIGNIFICANT * lead[1]
    text = f"{write_points(difference)} [{write_points(difference - half)}, {write_points(difference + half)}]"
    return f"**{text}**" if abs(difference) > half else text


_NOTES = {
    "own": "RR-ClArC's strengths are unit-free (the direction has the artifact's own size, so that a strength means "
    "the same at every layer); the paper's are not: the two columns cannot be compared number by number. RRR's have "
    "the paper's formula, with the trunk frozen.",
    "paper": "Strengths in the paper's units.",
}


def write_strengths(subjects: Subjects, *, facts: FactsBySubject | None = None) -> str:
    """Return the chosen strength of every method that has one, the paper's, and why it was chosen."""
    known = {key: (facts or {}).get(key, Facts()) for key in subjects}
    body: list[Sequence[str]] = []
    for key, rows in subjects.items():
        published = known[key].published
        variants = chosen_scores(rows)
        tried = {row.method for row in rows if row.strength is not None}
        lines: list[tuple[str, str, str]] = []  # method, title, strength
        for variant, scores in variants.items():
            strength = next((mean.strength for mean in scores.values() if mean.strength is not None), None)
            if strength is not None:
                lines.append((variant.method, variant.title(variants), f"{strength:g}"))
        taken = {variant.method for variant in variants}
        lines += [(method, method_title(method), "none") for method in tried - taken]
        without = known[key].reasons.keys() - {method for method, _, _ in lines}
        lines += [(method, method_title(method), MISSING) for method in without]
        for method, title, written in sorted(lines, key=lambda line: paper_place(line[0])):
            paper = published.strengths.get((key.model, method)) if published else None
            reason = known[key].reasons.get(method, "")
            body.append([key.title, title, written, MISSING if paper is None else f"{paper:g}", reason])
    notes = [_NOTES[grid] for grid in dict.fromkeys(each.grid for each in known.values())]
    heads = ["subject", "method", "strength", "paper", "why"]
    return paragraphs(markdown_table(heads, body), *notes, write_departures(facts))


_TIMES_NOTE = (
    "Mean ± standard error over the runs; relative to Vanilla in %. The paper's times are of another machine (a Tesla "
    "V100) and of whole epochs with the trunk; ours train the head on the cache, and only RRR needs the trunk again. "
    "Compare the relative columns."
)


def write_times(subjects: Subjects, *, facts: FactsBySubject | None = None) -> str:
    """Return absolute and relative times of every method, and the paper's."""
    heads = ["subject", "method", "runs", "s per epoch", "relative [%]", "paper: s per epoch", "paper: relative [%]"]
    body = []
    for key, rows in subjects.items():
        published = (facts or {}).get(key, Facts()).published
        theirs = (
            {method: pair for (model, method), pair in published.seconds.items() if model == key.model}
            if published
            else {}
        )
        means = seconds_of(rows)
        ours = {method: (mean.value, mean.seed_error if mean.repeats > 1 else None) for method, mean in means.items()}
        for method, mean in means.items():
            cells = [*_pair(ours, method), *_pair(theirs, method)]
            body.append([key.title, method_title(method), str(mean.repeats), *cells])
    return paragraphs(markdown_table(heads, body), _TIMES_NOTE, write_departures(facts))


def _pair(times: Mapping[str, tuple[float, float | None]], method: str) -> list[str]:
    """Return a method's time, and its share of Vanilla's, both with the method's own error, as in the paper."""
    if method not in times:
        return [MISSING, MISSING]
    value, error = times[method]
    absolute = f"{value:.3g}" + (f" ± {error:.2g}" if error is not None else "")
    whole = times.get("vanilla", (0.0, None))[0]
    if not whole:
        return [absolute, MISSING]
    return [absolute, f"{100 * value / whole:.1f}" + (f" ± {100 * error / whole:.1f}" if error is not None else "")]


T = TypeVar("T", int, float)


_EPOCHS_METRICS = ("accuracy_biased", "accuracy_clean", "balanced_accuracy_biased", "balanced_accuracy_clean")

_MOST_STRENGTHS = 5

_EPOCHS = 3

_EPOCHS_NOTE = (
    "All in %, on the validation images, ± standard error; of many strengths and epochs, some evenly spread. A "
    "line of zeros: the fine-tuning diverged at this strength."
)


def write_epochs(subjects: Subjects) -> str:
    """Return the scores after a few epochs, a line per subject and strength, for a few strengths."""
    found = {key: [row for row in rows if _is_watched(row)] for key, rows in subjects.items()}
    every = [row for rows in found.values() for row in rows]
    metrics = [name for name in _EPOCHS_METRICS if any(row.metric == name for row in every)]
    epochs = _spread({row.epoch or 0 for row in every}, _EPOCHS)
    columns = [(metric, epoch) for metric in metrics for epoch in epochs]
    body: list[Sequence[str]] = []
    for key, rows in found.items():
        means = average(rows, lambda row: (row.strength or 0.0, row.metric, row.epoch or 0))
        for strength in _spread({strength for strength, _, _ in means}, _MOST_STRENGTHS):
            cells = [write_average(metric, means.get((strength, metric, epoch))) for metric, epoch in columns]
            body.append([key.title, f"{strength:g}", *cells])
    heads = ["subject", "strength", *(f"{Metric.named(metric).label}: epoch {epoch}" for metric, epoch in columns)]
    return f"{markdown_table(heads, body)}\n\n{_EPOCHS_NOTE}\n"


def _is_watched(row: Row) -> bool:
    return row.method == FIRST and row.epoch is not None and row.strength is not None and row.metric in _EPOCHS_METRICS


def _spread(values: set[T], most: int) -> list[T]:
    """Return a few of the values, evenly spread, both ends among them."""
    ordered = sorted(values)
    return [ordered[i] for i in np.unique(np.linspace(0, len(ordered) - 1, most).round().astype(int))] if values else []


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

_CORRECTIONS_NOTES = {"failed": "failed", "chance": "answers no better than chance"}

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
                _note(status_of(results, variant), facts.reasons.get(variant.method, "")),
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


def _note(kind: ModelStatus, reason: str) -> str:
    """Say why a method does not compete: a failed one has no strength that could be taken, and a reason for that."""
    note = _CORRECTIONS_NOTES.get(kind, "")
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
