"""A table as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return the table, numbers flush right; the first column holds words."""
    ruler = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in (heads, ruler, *lines))
