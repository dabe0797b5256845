"""Help texts that list what there is, as ``{models}``: the names are filled in when somebody reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from typer.core import TyperCommand

# Written down once more, for their packages load torch, and nobody should wait seconds for a help text. A test
# compares them with what is registered.
MODELS = ("demo", "vgg16", "resnet18", "efficientnet_b0", "vgg16_pooled", "efficientnet_lite0")
TRAINED = ("whole", "head")


class Listing(TyperCommand):
    """A command whose help lists names; artifacts are looked up only when it is asked for."""

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


_LISTS: dict[str, Callable[[], Iterable[str]]] = {
    "{artifacts}": _artifacts,
    "{insertable}": _insertable,
    "{models}": lambda: MODELS,
    "{trained}": lambda: TRAINED,
}
