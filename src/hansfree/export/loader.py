"""The small Python file that loads a projection into the user's model where hansfree is not installed."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from hansfree.export.place import Place


def write_loader(path: Path, *, weights: str, place: Place) -> None:
    """Write the file; it needs torch and safetensors only.

    Args:
        weights: Name of the weights' file that lies beside it.
        place: Where the projection stands, behind a module.
    """
    environment = Environment(
        loader=PackageLoader("hansfree", "export"), undefined=StrictUndefined, keep_trailing_newline=True
    )
    text = environment.get_template("load_corrected.py.jinja").render(weights=weights, place=place)
    path.write_text(text, encoding="utf-8", newline="\n")
