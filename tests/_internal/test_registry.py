from __future__ import annotations

import pytest

from hansfree._internal.registry import Registered
from hansfree.errors import UnknownNameError


class Tool(Registered):
    pass


class Sharp(Tool):
    """An intermediate base: it has no name and cannot be found."""


class Knife(Sharp, name="knife"):
    pass


class Hammer(Tool, name="hammer"):
    pass


class Fruit(Registered):
    pass


class HammerFruit(Fruit, name="hammer"):
    """Another family may use the name."""


def test_members_are_found_by_name() -> None:
    assert Tool.named("knife") is Knife
    assert Tool.named("hammer") is Hammer
    assert Fruit.named("hammer") is HammerFruit
    assert Knife.name == "knife"
    assert list(Tool.members().items()) == [("knife", Knife), ("hammer", Hammer)]


def test_a_taken_name_is_refused_and_stays_with_its_owner() -> None:
    with pytest.raises(TypeError, match=r"'knife' is taken by tests\._internal\.test_registry\.Knife"):

        class Other(Tool, name="knife"):
            pass

    with pytest.raises(TypeError, match="'knife@hammer' holds '@', which joins the names of two"):

        class Both(Tool, name="knife@hammer"):
            pass

    assert Tool.named("knife") is Knife


def test_an_unknown_name_gets_the_nearest_and_all_others() -> None:
    with pytest.raises(UnknownNameError) as caught:
        Tool.named("hamer")
    assert str(caught.value) == "There is no Tool called 'hamer'. Did you mean 'hammer'? Known: knife, hammer."
    with pytest.raises(UnknownNameError, match=r"called 'xyz'\. Known: knife, hammer\."):
        Tool.named("xyz")
    with pytest.raises(UnknownNameError):
        Tool.named("Sharp")
