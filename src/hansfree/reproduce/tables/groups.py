"""The table of groups: accuracy of every method on the images of a class with, or without, a natural artifact."""

from __future__ import annotations

from collections.abc import Sequence

from hansfree.report.reading import method_title
from hansfree.reproduce.averages import average, write_average
from hansfree.reproduce.keys import Subjects
from hansfree.reproduce.tables.markdown import markdown_table

_NOTE = "Accuracy in % ± standard error over the images of the group, with the first seed."


def write_groups(subjects: Subjects) -> str:
    """Return a line per subject and group, a column per method, in %."""
    found = {
        key: average((row for row in rows if row.group), lambda row: (row.group, row.method))
        for key, rows in subjects.items()
    }
    methods = list(dict.fromkeys(method for means in found.values() for _, method in means))
    body: list[Sequence[str]] = []
    for key, means in found.items():
        for group in dict.fromkeys(group for group, _ in means):
            of_group = [means.get((group, method)) for method in methods]
            n = next((mean.n for mean in of_group if mean is not None), None)
            cells = [write_average("accuracy_clean", mean) for mean in of_group]
            body.append([key.title, str(group), "" if n is None else str(n), *cells])
    return f"{markdown_table(['subject', 'group', 'images', *map(method_title, methods)], body)}\n\n{_NOTE}\n"
