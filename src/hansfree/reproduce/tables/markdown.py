"""A table as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hansfree.report.reading import REFERENCES
from hansfree.report.style import STYLES

PAPER_METHODS = tuple(method for method in STYLES if method not in REFERENCES)  # in the order of its Table 1
NOT_RUN = "not run"


def markdown_table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return the table, numbers flush right; the first column holds words."""
    ruler = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in (heads, ruler, *lines))
