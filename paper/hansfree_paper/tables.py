"""Tables of the paper's experiments."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from hansfree.evaluation import FIRST, Variant, method_title, status_of
from hansfree.metrics import Metric
from hansfree.report import MISSING, Mark, markdown_table, marks_of, unit_of, write_points, write_stderr, write_value
from hansfree_paper.aggregate import (
    CACHED_SECONDS,
    GROUPS,
    PAPER_METHODS,
    SECONDS,
    SIGNIFICANT,
    Average,
    Finding,
    average,
    change_titles,
    paper_place,
    unseeded,
    write_average,
)
from hansfree_paper.dataset import BenchmarkDataset

T = TypeVar("T", int, float)

_PLAIN = ("accuracy_clean", "accuracy_biased")
_BALANCED = ("balanced_accuracy_clean", "balanced_accuracy_biased")


def paragraphs(*parts: str) -> str:
    """Return the parts that are not empty, with a blank line between them."""
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def spread(values: Iterable[T], most: int) -> list[T]:
    """Return a few of the values, evenly spread, both ends among them."""
    ordered = sorted(set(values))
    return (
        [ordered[i] for i in np.unique(np.linspace(0, len(ordered) - 1, most).round().astype(int))] if ordered else []
    )


def _labels(metrics: Iterable[str]) -> list[str]:
    return [Metric.named(metric).label for metric in metrics]


def write_departures(findings: Sequence[Finding]) -> str:
    """Return a sentence per way in which subjects with published numbers depart from the paper; empty where none do."""
    titles: dict[tuple[str, ...], list[str]] = {}
    for finding in findings:
        published, departures = finding.facts.published, finding.facts.departures
        if published and departures and any(model == finding.key.model for model, *_ in published.scores):
            titles.setdefault(departures, []).append(finding.key.title)
    return "\n\n".join(
        f"Not the paper's setting ({', '.join(found)}): {'; '.join(departures)}."
        for departures, found in titles.items()
    )


def write_groups(findings: Sequence[Finding]) -> str:
    """Return a line per subject and group, a column per method, in %."""
    found = {
        finding: average(
            (row for row in finding.rows if row.group is not None), lambda row: (row.group, row.artifact, row.method)
        )
        for finding in findings
    }
    methods = list(dict.fromkeys(method for means in found.values() for _, _, method in means))
    body = []
    for finding, means in found.items():
        names = finding.facts.class_names
        for group, artifact in dict.fromkeys((group, artifact) for group, artifact, _ in means):
            of_group = [means.get((group, artifact, method)) for method in methods]
            title = names[group] if group is not None and group < len(names) else f"class {group}"
            n = next(mean.n for mean in of_group if mean is not None)
            cells = [write_average("accuracy_clean", mean) for mean in of_group]
            body.append([finding.key.title, f"{title}, {artifact}", str(n), *cells])
    return paragraphs(
        markdown_table(["subject", "group", "images", *map(method_title, methods)], body),
        "Accuracy in % ± standard error over the images of the group, with the first seed.",
    )


def write_variants(findings: Sequence[Finding]) -> str:
    """Return the scores of every variant that was run; one without an admissible strength has none."""
    metrics = (*_PLAIN, *_BALANCED, "flip_rate", "tcav")
    body = []
    for finding in findings:
        variants = dict.fromkeys(unseeded(row) for row in finding.tested)
        for variant in variants:
            scores = finding.chosen.get(variant, {})
            strength = next((f"{mean.strength:g}" for mean in scores.values() if mean.strength is not None), "")
            cells = [write_average(metric, scores.get(metric)) for metric in metrics]
            body.append([finding.key.title, variant.title(variants), strength if scores else "none", *cells])
    return paragraphs(
        markdown_table(["subject", "variant", "strength", *_labels(metrics)], body),
        "All in %, on the test images, ± standard error. Strength none: no strength of it was fit to be taken.",
    )


_ALIGNMENTS = {"alignment_sample": "s", "alignment_mean": "s̄", "cav_auc": "AUC"}


def write_alignments(findings: Sequence[Finding]) -> str:
    """Return the quality of every CAV, a line per subject and CAV."""
    body = []
    for finding in findings:
        found = {metric: finding.cavs(metric) for metric in _ALIGNMENTS}
        best = {metric: max((mean.value for mean in means.values()), default=None) for metric, means in found.items()}
        for name in dict.fromkeys(name for means in found.values() for name in means):
            cells = [_alignment(means.get(name), best[metric]) for metric, means in found.items()]
            body.append([finding.key.title, name, *cells])
    return paragraphs(
        markdown_table(["subject", "CAV", *_ALIGNMENTS.values()], body),
        "Cosine between the CAV and the change of the pooled activations when the artifact is put in: mean over the "
        "test images (s), and of the mean change (s̄). AUC: how well the score along the CAV tells held-out images "
        "with the artifact from those without. ± is the standard error over the images; best alignment in bold.",
    )


def _alignment(mean: Average | None, best: float | None) -> str:
    if mean is None:
        return MISSING
    text = f"{mean.value:.3f}" + (f" ± {mean.stderr:.3f}" if mean.stderr is not None else "")
    return f"**{text}**" if mean.value == best else text


def write_changes(findings: Sequence[Finding]) -> str:
    """Return the change on selected, random and all classes of every method."""
    body = []
    for finding in findings:
        changes = finding.changes
        untaken = {unseeded(row) for row in finding.tested if row.strength is not None} - changes.keys()
        titles = change_titles([*changes, *untaken], finding.facts.class_names)
        for variant, means in changes.items():
            body.append([finding.key.title, titles[variant], *(_change(means.get(group)) for group in GROUPS)])
        body += [
            [finding.key.title, title, "no strength", MISSING, MISSING] for title in sorted(titles[v] for v in untaken)
        ]
    return paragraphs(
        markdown_table(["subject", "method", *GROUPS], body),
        "Change of the accuracy on clean test images against Vanilla, in points, over the classes that react most to "
        "the artifact (selected), as many others (random), and all, with the first seed. ± is the standard error over "
        "the same images; no strength: none was fit to be taken.",
    )


def write_selected(findings: Sequence[Finding]) -> str:
    """Return the classes that react most to the artifact, a line per subject."""
    return "\n".join(f"- {finding.key.title}: {', '.join(finding.notes['selected'])}" for finding in findings)


def _change(mean: Average | None) -> str:
    if mean is None:
        return MISSING
    stderr = write_stderr("accuracy_clean", mean.stderr)
    return write_points(mean.value) + (f" ± {stderr}" if stderr else "")


def write_path(findings: Sequence[Finding]) -> str:
    """Return the scores of Vanilla and of RR-ClArC at every strength, a line each."""
    metrics = (*_PLAIN, *_BALANCED, "tcav")  # by image: positions are counted at the chosen strength only
    body = []
    for finding in findings:
        rows = [row for row in finding.tested if row.method in ("vanilla", FIRST) and row.metric in metrics]
        means = average(rows, lambda row: (row.method, row.strength, row.metric))
        chosen = {(row.method, row.strength) for row in rows if row.chosen and row.strength is not None}
        lines = {(name, strength) for name, strength, _ in means}
        for name, strength in sorted(lines, key=lambda line: (line[0] == FIRST, line[1] or 0.0)):
            title = method_title(name) if strength is None else f"{strength:g}"
            cells = [write_average(metric, means.get((name, strength, metric))) for metric in metrics]
            body.append([finding.key.title, f"**{title}**" if (name, strength) in chosen else title, *cells])
    return paragraphs(
        markdown_table(["subject", f"strength of {method_title(FIRST)}", *_labels(metrics)], body),
        "All in %, on the test images, ± standard error. **Bold**: the strength that the validation images chose. "
        "TCAV: share of images whose derivative along the direction, summed over positions, is positive. A line of "
        "zeros: the fine-tuning diverged at this strength, and a model without finite answers is right about nothing.",
    )


def write_epochs(findings: Sequence[Finding]) -> str:
    """Return the scores after a few epochs, a line per subject and strength, for a few strengths."""
    found = {
        finding: average(
            (row for row in finding.rows if row.method == FIRST and row.epoch is not None and row.strength is not None),
            lambda row: (row.strength or 0.0, row.metric, row.epoch or 0),
        )
        for finding in findings
    }
    every = [about for means in found.values() for about in means]
    metrics = [name for name in (*_PLAIN[::-1], *_BALANCED[::-1]) if any(metric == name for _, metric, _ in every)]
    columns = [(metric, epoch) for metric in metrics for epoch in spread((epoch for *_, epoch in every), 3)]
    body = [
        [
            finding.key.title,
            f"{strength:g}",
            *(write_average(metric, means.get((strength, metric, epoch))) for metric, epoch in columns),
        ]
        for finding, means in found.items()
        for strength in spread((strength for strength, *_ in means), 5)
    ]
    heads = [f"{Metric.named(metric).label}: epoch {epoch}" for metric, epoch in columns]
    return paragraphs(
        markdown_table(["subject", "strength", *heads], body),
        "All in %, on the test images, ± standard error; of many strengths and epochs, some evenly spread. A "
        "line of zeros: the fine-tuning diverged at this strength.",
    )


def write_differences(findings: Sequence[Finding]) -> str:
    """Return by how much RR-ClArC is ahead of every rival, with intervals; a line per subject and rival."""
    metrics = (*_PLAIN, *_BALANCED)
    body = []
    for finding in findings:
        for rival in sorted(finding.by_method.keys() - {FIRST}, key=paper_place):
            leads = [finding.lead(FIRST, rival, metric) for metric in metrics]
            if any(leads):
                body.append([finding.key.title, method_title(rival), *map(_interval, leads)])
    first = method_title(FIRST)
    if not body:
        return f"No image was answered both by {first} and by a rival.\n"
    return paragraphs(
        markdown_table(["subject", f"{first} minus", *_labels(metrics)], body),
        f"{first} minus the method of the line on the same test images, in points: the difference of the means over "
        "the seeds, and its 95 % interval, of the images (paired, as the first seed has them) and of the seeds "
        f"together: {SIGNIFICANT:.3g} standard errors to each side (normal approximation). **Bold**: it leaves out 0.",
    )


def _interval(lead: tuple[float, float] | None) -> str:
    if lead is None:
        return MISSING
    difference, half = lead[0], SIGNIFICANT * lead[1]
    text = f"{write_points(difference)} [{write_points(difference - half)}, {write_points(difference + half)}]"
    return f"**{text}**" if abs(difference) > half else text


_GRID_NOTES = {
    "own": "RR-ClArC's strengths are unit-free (the direction has the artifact's own size, so that a strength means "
    "the same at every layer); the paper's are not: the two columns cannot be compared number by number. Nor can "
    "RRR's: ours penalises the squared gradient on the mask (Ross et al.), the paper's code its cosine with the mask.",
    "paper": "Strengths in the paper's units.",
}


_RULES = {"paper": "the paper's", "own": "ours"}


def write_strengths(findings: Sequence[Finding]) -> str:
    """Return the strengths that both rules choose with their test scores, the paper's own, and why."""
    body = []
    for finding in findings:
        published, reasons, compared = finding.facts.published, finding.facts.reasons, finding.facts.compared
        rule, other = _RULES[finding.facts.rule], _RULES["own" if finding.facts.rule == "paper" else "paper"]
        means = average(finding.tested, lambda row: (unseeded(row), row.strength, row.metric))
        lines: list[tuple[str, list[str]]] = []  # method, cells

        def scores(variant: Variant, strength: float | None, means: Mapping[Any, Average] = means) -> list[str]:
            return [write_average(metric, means.get((variant, strength, metric))) for metric in _PLAIN]

        tried = dict.fromkeys(unseeded(row) for row in finding.tested if row.strength is not None)
        for variant in tried:
            chosen = finding.chosen.get(variant, {})
            strength = next((mean.strength for mean in chosen.values() if mean.strength is not None), None)
            paper = published.strengths.get((finding.key.model, variant.method)) if published else None
            title = variant.title(tried)
            cells = [_strength(strength), *scores(variant, strength), MISSING if paper is None else f"{paper:g}"]
            lines.append((variant.method, [title, rule, *cells, reasons.get(variant.method, "")]))
            if variant.method in compared:
                strength = compared[variant.method]
                cells = [_strength(strength), *scores(variant, strength), MISSING, ""]
                lines.append((variant.method, [title, other, *cells]))
        without = reasons.keys() - {variant.method for variant in tried}
        lines += [(name, [method_title(name), rule, *[MISSING] * 4, reasons[name]]) for name in without]
        body += [[finding.key.title, *cells] for _, cells in sorted(lines, key=lambda line: paper_place(line[0]))]
    notes = [_GRID_NOTES[grid] for grid in dict.fromkeys(finding.facts.grid for finding in findings)]
    heads = ["subject", "method", "rule", "strength", *_labels(_PLAIN), "paper's strength", "why"]
    return paragraphs(markdown_table(heads, body), *notes, write_departures(findings))


def _strength(strength: float | None) -> str:
    return "none" if strength is None else f"{strength:g}"


def write_times(findings: Sequence[Finding]) -> str:
    """Return absolute and relative times of every method, and the paper's."""
    kinds = ("s per epoch", "relative [%]")
    heads = ["subject", "method", "runs", *(f"{of}{kind}" for of in ("", "paper: ", "cached: ") for kind in kinds)]
    body = []
    for finding in findings:
        published = finding.facts.published.seconds if finding.facts.published else {}
        theirs = {method: pair for (model, method), pair in published.items() if model == finding.key.model}
        whole, cached = (
            {method: (mean.value, mean.seed_error if mean.repeats > 1 else None) for method, mean in means.items()}
            for means in map(finding.seconds, (SECONDS, CACHED_SECONDS))
        )
        for method, mean in finding.seconds().items():
            cells = [*_time(whole, method), *_time(theirs, method), *_time(cached, method)]
            body.append([finding.key.title, method_title(method), str(mean.repeats), *cells])
    return paragraphs(
        markdown_table(heads, body),
        "Mean ± standard error over the runs; relative to Vanilla in %. As the paper's, of another machine (a Tesla "
        "V100), an epoch includes a pass of all training images through the trunk: compare the relative columns. "
        "Cached: as hansfree trains, the head on the stored output of the layer; only RRR needs the trunk again.",
        write_departures(findings),
    )


def _time(times: Mapping[str, tuple[float, float | None]], method: str) -> list[str]:
    """Return a method's time, and its share of Vanilla's, both with the method's own error, as in the paper."""
    if method not in times:
        return [MISSING, MISSING]
    value, error = times[method]
    absolute = f"{value:.3g}" + (f" ± {error:.2g}" if error is not None else "")
    if "vanilla" not in times:
        return [absolute, MISSING]
    whole = times["vanilla"][0]
    return [absolute, f"{100 * value / whole:.1f}" + (f" ± {100 * error / whole:.1f}" if error is not None else "")]


# Table 1 and its details

_DETAILS = (
    *_PLAIN,
    *_BALANCED,
    "flip_rate",
    "tcav_positions",
    "tcav",
    "tcav_sensitivity",
    "tcav_sensitivity_positions",
    "artifact_relevance",
)
_TABLE1 = {"accuracy_clean": "clean", "accuracy_biased": "biased", "tcav_positions": "TCAV, positions"}
_NOT_RUN = "not run"
_STATUS_NOTES = {"failed": "failed", "chance": "answers no better than chance"}
_EMPHASIS: dict[Mark, str] = {"best": "**", "near": "*", "": ""}

_LEGEND = (
    "**Bold**: nearest to the ideal (accuracy 100, TCAV 50, all others 0) of the methods that compete; *italic*: "
    "within one standard error of it."
)


@dataclass(frozen=True)
class _Line:
    """A method in one subject."""

    title: str
    method: str
    scores: Mapping[str, Average]
    marks: Mapping[str, Mark]
    note: str = ""  # why it does not compete


def write_table1(findings: Sequence[Finding]) -> str:
    """Return the paper's Table 1: models and methods down, biases across, each with clean, biased and TCAV in %."""
    biases = list(dict.fromkeys((finding.key.data, finding.key.artifact) for finding in findings))
    papers = [(name, each.artifacts[0]) for name, each in BenchmarkDataset.members().items() if each.published]
    is_one_data = len({data for data, _ in biases}) == 1
    if not is_one_data and {*biases} & {*papers}:  # the paper's columns, blank where they are not finished
        biases = [*papers, *(bias for bias in biases if bias not in papers)]
    names = [artifact if is_one_data else f"{artifact} ({data})" for data, artifact in biases]
    heads = ["model", "method", *(f"{name}: {head}" for name in names for head in _TABLE1.values())]
    by_model: dict[str, dict[tuple[str, str], dict[str, _Line]]] = {}
    for finding in findings:
        lines = {line.title: line for line in _lines(finding)}
        by_model.setdefault(finding.key.model, {})[finding.key.data, finding.key.artifact] = lines
    body = []
    for model, found in by_model.items():
        for title in dict.fromkeys(title for lines in found.values() for title in lines):
            cells = [cell for bias in biases for cell in _short_cells(found.get(bias, {}).get(title))]
            body.append([model, title, *cells])
    error = "of the test images and of the seeds together" if _is_repeated(findings) else "of the test images"
    return paragraphs(
        markdown_table(heads, body),
        f"All in %, ± the standard error {error}. {_LEGEND} †: failed or answers no better than chance; no strength: "
        "none was fit to be taken.",
        "TCAV, positions is counted as in the paper's tables: the share of positive among the non-zero derivatives "
        "over all positions; TCAV, in detail below, is the share of images whose derivative, summed over positions, is "
        "positive.",
    )


def _short_cells(line: _Line | None) -> list[str]:
    if line is None or not line.scores:
        word = MISSING if line is None else line.note if line.note == _NOT_RUN else "no strength"
        return [word, *[MISSING] * (len(_TABLE1) - 1)]
    cells = []
    for name in _TABLE1:
        text = MISSING
        if mean := line.scores.get(name):
            is_finite = math.isfinite(mean.value)
            text = f"{write_value(name, mean.value)} ± {write_stderr(name, mean.error)}" if is_finite else "NaN"
            text += "†" if line.note else ""
        cells.append(_emphasised(text, line.marks[name]))
    return cells


def write_details(findings: Sequence[Finding]) -> str:
    """Return one table per subject with every metric and its errors, and the paper's numbers beside ours."""
    errors = "± is the standard error from the test images"
    if _is_repeated(findings):
        errors += (
            " as one seed has it (all seeds are scored on the same images, so it does not shrink with their number); "
            "in brackets the standard deviation over the seeds"
        )
    return paragraphs(*map(_details, findings), f"{_LEGEND} {errors}.", write_departures(findings))


def _is_repeated(findings: Sequence[Finding]) -> bool:
    """Tell whether any score is a mean over several seeds."""
    return any(mean.repeats > 1 for finding in findings for of in finding.chosen.values() for mean in of.values())


def _details(finding: Finding) -> str:
    key, facts, lines = finding.key, finding.facts, _lines(finding)
    published = facts.published.scores if facts.published else {}
    in_paper = {metric for model, _, metric in published if model == key.model}
    metrics = [name for name in _DETAILS if name in in_paper or any(name in line.scores for line in lines)]
    heads, body = [f"{key.title}: method"], []
    for name in metrics:
        heads += [f"{Metric.named(name).label} [{unit_of(name)}]", *(["paper"] if name in in_paper else [])]
    if facts.majority_rate is not None:  # of always predicting the largest class
        known = {**dict.fromkeys(_PLAIN, facts.majority_rate), **dict.fromkeys(_BALANCED, facts.chance_level)}
        scores = {name: Average(rate, None, None, 1) for name, rate in known.items() if rate is not None}
        lines.append(_Line("Majority rate", "", scores, {}))
    for line in lines:
        cells = [f"{line.title} ({line.note})" if line.note else line.title]
        for name in metrics:
            cells.append(_emphasised(write_average(name, line.scores.get(name)), line.marks.get(name, "")))
            if name in in_paper:
                theirs = published.get((key.model, line.method, name))
                cells.append(f"{write_value(name, theirs[0])} ± {write_stderr(name, theirs[1])}" if theirs else MISSING)
        body.append(cells)
    return markdown_table(heads, body)


def _lines(finding: Finding) -> list[_Line]:
    """Return every variant that was run and every method of the paper that was not, in the paper's order."""
    results = finding.results()
    variants = results.methods()
    marks = {name: marks_of(results, name) for name in _DETAILS}
    lines = []
    for variant in variants:
        status, reason = status_of(results, variant), finding.facts.reasons.get(variant.method, "")
        note = _STATUS_NOTES.get(status, "") + (f": {reason}" if status == "failed" and reason else "")
        marked = {name: marks[name].get(variant, "") for name in _DETAILS}
        lines.append(_Line(variant.title(variants), variant.method, finding.chosen.get(variant, {}), marked, note))
    run = {line.method for line in lines}
    lines += [_Line(method_title(name), name, {}, {}, _NOT_RUN) for name in PAPER_METHODS if name not in run]
    return sorted(lines, key=lambda line: paper_place(line.method))


def _emphasised(text: str, mark: Mark) -> str:
    return f"{_EMPHASIS[mark]}{text}{_EMPHASIS[mark]}"
