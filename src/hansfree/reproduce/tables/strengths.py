"""The table of best strengths."""

from __future__ import annotations

from hansfree.report.numbers import MISSING
from hansfree.reproduce.averages import chosen_scores
from hansfree.reproduce.keys import Facts, FactsBySubject, Subjects
from hansfree.reproduce.tables.markdown import markdown_table

_NOTE = (
    "Ours are unit-free (the direction has the artifact's own size, so a strength means the same at every layer); the "
    "paper's are not. The two columns cannot be compared number by number."
)


def write_strengths(subjects: Subjects, *, facts: FactsBySubject | None = None) -> str:
    """Return the chosen strength of every method that has one, and the paper's."""
    body = []
    for key, rows in subjects.items():
        published = (facts or {}).get(key, Facts()).published
        variants = chosen_scores(rows)
        for variant, scores in variants.items():
            strength = next((mean.strength for mean in scores.values() if mean.strength is not None), None)
            if strength is not None:
                paper = published.strengths.get((key.model, variant.method)) if published else None
                body.append(
                    [key.title, variant.title(variants), f"{strength:g}", MISSING if paper is None else f"{paper:g}"]
                )
    return f"{markdown_table(['subject', 'method', 'strength', 'paper'], body)}\n\n{_NOTE}\n"
