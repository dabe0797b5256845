"""Ours and the paper's numbers, one per line, for a CSV file."""

from __future__ import annotations

from hansfree.reproduce.averages import chosen_scores
from hansfree.reproduce.keys import Facts, FactsBySubject, Subjects

COMPARISON_COLUMNS = (
    *("data", "artifact", "model", "method", "cav", "target", "norm", "strength"),
    *("metric", "value", "stderr", "spread", "repeats", "n", "paper", "paper_stderr"),
)


def comparison_lines(subjects: Subjects, *, facts: FactsBySubject | None = None) -> list[dict[str, str | float | None]]:
    """Return the mean of every score at the chosen strength, with the paper's where it has one."""
    lines: list[dict[str, str | float | None]] = []
    for key, rows in subjects.items():
        published = (facts or {}).get(key, Facts()).published
        for variant, scores in chosen_scores(rows).items():
            for metric, mean in scores.items():
                paper = published.scores.get((key.model, variant.method, metric)) if published else None
                cells = (
                    *(key.data, key.artifact, key.model, variant.method, variant.cav, variant.target, variant.norm),
                    *(mean.strength, metric, mean.value, mean.stderr, mean.spread, mean.repeats, mean.n),
                    *(paper or (None, None)),
                )
                lines.append(dict(zip(COMPARISON_COLUMNS, cells)))
    return lines
