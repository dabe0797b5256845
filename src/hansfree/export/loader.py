"""The small Python file that loads a projection into the user's model where hansfree is not installed."""

from __future__ import annotations

from pathlib import Path

from hansfree.export.place import Place
from hansfree.templates import open_templates


def write_loader(path: Path, *, weights: str, place: Place) -> None:
    """Write the file; it needs torch and safetensors only.

    Args:
        weights: Name of the weights' file that lies beside it.
        place: Where the projection stands, behind a module.
    """
    templates = open_templates("export", is_html=False)
    text = templates.get_template("load_corrected.py.jinja").render(weights=weights, place=place)
    path.write_text(text, encoding="utf-8", newline="\n")
