"""The table of best strengths, and why each was taken, or none."""

from __future__ import annotations

from collections.abc import Sequence

from hansfree.report.numbers import MISSING
from hansfree.report.reading import method_title
from hansfree.reproduce.averages import chosen_scores, paper_place
from hansfree.reproduce.keys import Facts, FactsBySubject, Subjects
from hansfree.reproduce.tables.departures import write_departures
from hansfree.reproduce.tables.markdown import markdown_table, paragraphs

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
            told = known[key].reasons.get(method, "")
            body.append([key.title, title, written, MISSING if paper is None else f"{paper:g}", told])
    notes = [_NOTES[grid] for grid in dict.fromkeys(each.grid for each in known.values())]
    heads = ["subject", "method", "strength", "paper", "why"]
    return paragraphs(markdown_table(heads, body), *notes, write_departures(facts))
