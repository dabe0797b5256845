"""How text files are made from templates: one environment for pages and cards, so that none forgets to escape."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined


@cache
def open_templates(room: str, *, is_html: bool) -> Environment:
    """Return the templates that lie in a room of the package; a name that a template does not get is an error.

    They are read and compiled once: in one process the same ones are filled again and again.

    Args:
        room: Folder below ``hansfree``.
        is_html: Escape what is put in.
    """
    return Environment(
        loader=PackageLoader("hansfree", room),
        autoescape=is_html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
