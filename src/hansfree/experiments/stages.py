"""The stages of a method that whoever is free can do, by name."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Stage(NamedTuple):
    """Some strengths of a method, a further seed of it, or without a kind its choice and all that follows."""

    method: str
    kind: Literal["strengths", "seed"] | None = None
    number: int = 0

    @property
    def name(self) -> str:
        """The stage's name in the run."""
        return self.method if self.kind is None else f"{self.method} {self.kind} {self.number}"
