"""Ours and the paper's numbers, one per line, for a CSV file."""

from __future__ import annotations

import csv
import io

from hansfree.reproduce.averages import chosen_scores
from hansfree.reproduce.keys import Facts, FactsBySubject, Subjects

COMPARISON_COLUMNS = (
    *("data", "artifact", "model", "method", "cav", "target", "norm", "strength"),
    *("metric", "value", "stderr", "spread", "repeats", "n", "paper", "paper_stderr", "departures"),
)


def write_comparison(subjects: Subjects, *, facts: FactsBySubject | None = None) -> str:
    """Return the lines as CSV; empty where the paper has no number for any of them."""
    lines = comparison_lines(subjects, facts=facts)
    if not any(line["paper"] is not None for line in lines):
        return ""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COMPARISON_COLUMNS)
    writer.writerows([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in line.values()] for line in lines)
    return text.getvalue()


def comparison_lines(subjects: Subjects, *, facts: FactsBySubject | None = None) -> list[dict[str, str | float | None]]:
    """Return the mean of every score at the chosen strength, with the paper's where it has one."""
    lines: list[dict[str, str | float | None]] = []
    for key, rows in subjects.items():
        known = (facts or {}).get(key, Facts())
        for variant, scores in chosen_scores(rows).items():
            for metric, mean in scores.items():
                paper = known.published.scores.get((key.model, variant.method, metric)) if known.published else None
                cells = (
                    *(key.data, key.artifact, key.model, variant.method, variant.cav, variant.target, variant.norm),
                    *(mean.strength, metric, mean.value, mean.stderr, mean.spread, mean.repeats, mean.n),
                    *(paper or (None, None)),
                    "; ".join(known.departures) if paper else None,
                )
                lines.append(dict(zip(COMPARISON_COLUMNS, cells)))
    return lines
