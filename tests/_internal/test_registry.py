from __future__ import annotations

from collections.abc import Callable

import pytest

from hansfree._internal.registry import Registered
from hansfree.errors import UnknownNameError


class Tool(Registered): ...


class Sharp(Tool):
    """An intermediate base: it has no name and cannot be found."""


class Knife(Sharp, name="knife"): ...


class Hammer(Tool, name="hammer"): ...


class Fruit(Registered): ...


class HammerFruit(Fruit, name="hammer"):
    """Another family may use the name."""


def test_members_are_found_by_name() -> None:
    assert (Tool.named("knife"), Fruit.named("hammer"), Knife.name) == (Knife, HammerFruit, "knife")
    assert list(Tool.members().items()) == [("knife", Knife), ("hammer", Hammer)]
    assert list(Sharp.members()) == ["knife"]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: type("Other", (Tool,), {}, name="knife"), TypeError, r"'knife' is taken by tests\..*\.Knife"),
        (lambda: type("Other", (Tool,), {}, name="a@b"), TypeError, "'a@b' holds '@', which joins the names of two"),
        (lambda: Tool.named("hamer"), UnknownNameError, r"no Tool .* mean 'hammer'\? Known: knife, hammer\."),
        (lambda: Tool.named("Sharp"), UnknownNameError, "called 'Sharp'"),
    ],
)
def test_invalid_names(call: Callable[[], object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
    assert Tool.named("knife") is Knife
