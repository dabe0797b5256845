"""Classes that register themselves by name."""

from __future__ import annotations

from typing import Any, ClassVar

from typing_extensions import Self

from hansfree.errors import UnknownNameError, nearest

RESERVED = "@"
"""Joins two members' names to one, so no name of its own may hold it."""


class Registered:
    """Base of a family; a subclass with ``name=`` is found by that name, one without is an intermediate base."""

    name: ClassVar[str]
    kind: ClassVar[str]  # what users call a member of the family, for sentences; the family's own name by default
    rank: ClassVar[int] = 0  # members of a higher rank come later in tables and lists
    _members: ClassVar[dict[str, type[Any]]]

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if Registered in cls.__bases__:
            cls._members = {}
            cls.kind = cls.__dict__.get("kind", cls.__name__)
        if name is None:
            return
        if RESERVED in name:
            raise TypeError(f"The name {name!r} holds {RESERVED!r}, which joins the names of two.")
        if name in cls._members:
            taken = cls._members[name]
            raise TypeError(f"The name {name!r} is taken by {taken.__module__}.{taken.__qualname__}.")
        cls.name = name
        cls._members[name] = cls

    @classmethod
    def named(cls, name: str) -> type[Self]:
        """Return the member called ``name``; the error lists all names and the nearest."""
        members = cls.members()
        if name not in members:
            raise UnknownNameError(
                f"There is no {cls.kind} called {name!r}.{nearest(name, members)} Known: {', '.join(members)}."
            )
        return members[name]

    @classmethod
    def members(cls) -> dict[str, type[Self]]:
        """Return all members by name: by rank, then in the order in which they were defined.

        An intermediate base returns its own subclasses only.
        """
        found = {name: member for name, member in cls._members.items() if issubclass(member, cls)}
        return dict(sorted(found.items(), key=lambda item: item[1].rank))
