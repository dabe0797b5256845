"""The table of class-specific correction: what each method costs the classes that need the concept."""

from __future__ import annotations

from collections.abc import Sequence

from hansfree.report.numbers import MISSING, write_points, write_stderr
from hansfree.reproduce.averages import Average, final_rows, unseeded
from hansfree.reproduce.changes import GROUPS, change_titles, changes_of
from hansfree.reproduce.keys import Facts, FactsBySubject, Subjects
from hansfree.reproduce.tables.markdown import markdown_table

_NOTE = (
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
    return f"{markdown_table(['subject', 'method', *GROUPS], body)}\n\n{_NOTE}\n"


def _points(mean: Average | None) -> str:
    if mean is None:
        return MISSING
    stderr = write_stderr("accuracy_clean", mean.stderr)
    return write_points(mean.value) + (f" ± {stderr}" if stderr else "")
