"""A plaster on the skin: an artifact that is in the scene."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

import numpy as np

from hansfree.artifacts.base import Artifact
from hansfree.errors import DataError

if TYPE_CHECKING:
    from hansfree.datasets.base import ImageSource


@runtime_checkable
class _DrawsPlaster(Protocol):
    """A source that can draw a plaster into its own scenes."""

    def render(self, index: int, *, plaster: bool = False) -> tuple[np.ndarray, np.ndarray]: ...


@dataclass(frozen=True)
class Plaster(Artifact, name="plaster"):
    """A coloured plaster on the skin, drawn by the source itself under the light of the scene.

    It stands for natural artifacts, which are in the scene and not on top of the picture (the paper's collars).
    """

    localized: ClassVar[bool] = True

    def stamp(self, image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Refuse: a finished picture no longer tells where skin, lesion and light are."""
        raise DataError("A plaster cannot be stamped on a finished picture: use insert with a source that draws it.")

    def insert(self, source: ImageSource, index: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Ask the source for the same scene with a plaster; the source's own seed decides how it looks."""
        if not isinstance(source, _DrawsPlaster):
            raise DataError(
                f"{type(source).__name__} cannot draw a plaster: it has no method render(index, plaster=True). "
                "SyntheticLesions has one."
            )
        return source.render(index, plaster=True)
