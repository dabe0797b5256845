"""What pages in Markdown are put together from."""

from __future__ import annotations

from hansfree.report.markdown import markdown_table

__all__ = ["NOT_RUN", "markdown_table", "paragraphs"]

NOT_RUN = "not run"


def paragraphs(*parts: str) -> str:
    """Return the parts that are not empty, with a blank line between them."""
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"
