"""How text files are made from templates: one environment for pages and cards, so that none forgets to escape."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined


def open_templates(room: str, *, is_html: bool) -> Environment:
    """Return the templates that lie in a room of the package; a name that a template does not get is an error.

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
