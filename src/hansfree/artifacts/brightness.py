"""A brighter exposure: an artifact without a place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hansfree.artifacts.base import Artifact, require_pixels
from hansfree.errors import OptionError


@dataclass(frozen=True, kw_only=True)
class Brightness(Artifact, name="brightness"):
    """A brighter exposure (paper, App. A: alpha = 0.3).

    Args:
        alpha: how far every value moves towards white, in (0, 1].
    """

    localized: ClassVar[bool] = False
    alpha: float = 0.3

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise OptionError(f"Brightness needs an alpha above 0 and up to 1, not {self.alpha!r}.")

    def stamp(self, image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Map every value ``v`` to ``min(255, (1 - alpha) v + alpha 255)``; nothing is random."""
        require_pixels(image)
        table = np.minimum(255, (1 - self.alpha) * np.arange(256) + self.alpha * 255)
        return np.rint(table).astype(np.uint8)[image], np.ones(image.shape[:2], dtype=bool)
