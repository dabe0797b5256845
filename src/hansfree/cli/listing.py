"""Help texts that list what there is, as ``{models}``: the names are looked up when somebody reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, get_args

from typer.core import TyperCommand


class Listing(TyperCommand):
    """A command whose help lists names; they live in packages that are too heavy to load before it is asked for."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help with the names in it."""
        for option in self.params:
            option.help = fill_in(option.help or "")  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def fill_in(text: str) -> str:
    """Return a text with the names that it asks for."""
    for word, names in _LISTS.items():
        if word in text:
            text = text.replace(word, ", ".join(names()))
    return text


def _artifacts() -> Iterable[str]:
    from hansfree.artifacts import Artifact

    return Artifact.without_file()


def _insertable() -> Iterable[str]:
    from hansfree.artifacts import Artifact

    return Artifact.for_pictures()


def _models() -> Iterable[str]:
    from hansfree.models import ARCHITECTURES

    return ARCHITECTURES


def _races() -> Iterable[str]:
    from hansfree.bench import Race

    return Race.members()


def _trained() -> Iterable[str]:
    from hansfree.experiments.plans import Trained

    return get_args(Trained)


_LISTS: dict[str, Callable[[], Iterable[str]]] = {
    "{artifacts}": _artifacts,
    "{insertable}": _insertable,
    "{models}": _models,
    "{races}": _races,
    "{trained}": _trained,
}
