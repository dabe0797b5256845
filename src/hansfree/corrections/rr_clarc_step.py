"""RR-ClArC for a whole step: penalise what the output does when all of the artifact is added, not its derivative."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from typing_extensions import Self

from hansfree.activations import Activations
from hansfree.cavs import CAV
from hansfree.corrections.rr_clarc import RRClArC, Target
from hansfree.errors import OptionError, check_choice
from hansfree.training import FineTuning, HeadBatch, WeightedHead

StepNorm = Literal["squared", "absolute"]


class RRClArCStep(RRClArC, name="rr-clarc-step"):
    """Fine-tune with a penalty on the difference between the logits with and without the artifact's whole shift.

    A derivative says what an endless small part of the artifact does. A head that saturates can have none here and
    still answer otherwise once the artifact is there; the step sees that. For a head that is linear in the direction
    it is RR-ClArC. The step is as long as the artifact is along each direction, at every position. Along one in which
    the artifact moves images both ways (``scale_`` of 0) the steps both ways count, by half each.

    Args:
        target: As for `RRClArC`, without sampled signs: ``"expected"``, ``"all"``, ``"logprob"``, a class or several.
        norm: ``"squared"`` or ``"absolute"``.
    """

    title = "RR-ClArC (step)"
    is_default: ClassVar[bool] = False
    paper_grid = RRClArC.grid  # the paper has no such method, so there are no units of its own

    def __init__(
        self,
        cav: CAV,
        *,
        strength: float = 1.0,
        target: Target = "expected",
        norm: StepNorm = "squared",
        tuning: FineTuning | None = None,
    ) -> None:
        check_choice("norm", norm, StepNorm)
        if isinstance(target, str) and target == "random":
            raise OptionError("target='random' draws signs anew for every pass, and a step is a difference of two.")
        super().__init__(cav, strength=strength, target=target, norm=norm, tuning=tuning)

    @classmethod
    def for_paper(cls, *, cav: CAV, images: Dataset[Any], tuning: FineTuning) -> Self:
        """Make the member of a run: the paper has no unit for a step."""
        return cls.for_run(cav=cav, images=images, tuning=tuning)

    @property
    def takes_steps(self) -> bool:
        """Say that whole steps count."""
        return True

    def directions(self, activations: Activations) -> np.ndarray:
        """Return the CAV's directions; where one of them has no side all come twice, it with both signs."""
        once = super().directions(activations)
        if self._has_sides:
            return once
        return np.concatenate([once, np.where(self.cav.scale_[:, None] > 0, once, -once)])

    def _outputs(self, logits: Tensor, noise: torch.Generator) -> Tensor:
        """Let what comes twice count by half, in the squares or the absolute values that are summed."""
        outputs = super()._outputs(logits, noise)
        if self._has_sides:
            return outputs
        return outputs / (2**0.5 if self.norm == "squared" else 2)

    @property
    def _has_sides(self) -> bool:
        return bool(np.all(self.cav.scale_ > 0))

    def _respond(self, head: WeightedHead, batch: HeadBatch) -> tuple[Tensor, Tensor]:
        logits, moved = head.take_steps(batch.values, batch.tangents)
        after = torch.stack([self._outputs(each, batch.noise) for each in moved])
        return logits, after - self._outputs(logits, batch.noise)
