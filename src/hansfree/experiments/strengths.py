"""One method along its strengths: trained here, or read where others have tried them apart.

Large heads are trained in groups of strengths that need nothing from each other, so each group can be a stage of its
own, done anywhere. It keeps what its heads did; their weights would fill the disk, and only those of one are wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from hansfree.corrections import Correction
from hansfree.evaluation import HeldOutFeatures, judge_head
from hansfree.experiments.material import Material
from hansfree.experiments.stages import Stage
from hansfree.metrics import Score, compute_scores
from hansfree.progress import Progress, silent, without_warnings
from hansfree.runs import Run
from hansfree.selection import Validation
from hansfree.training import TrainedHead, group_strengths


@dataclass(frozen=True, eq=False)
class TriedHead(TrainedHead):
    """A head that was trained apart: its weights are gone, what it did is known."""

    scores: list[Score]


class Strengths:
    """The heads of one method.

    Args:
        name: Of the method's stage.
    """

    def __init__(
        self,
        material: Material,
        run: Run,
        name: str,
        method: Correction,
        strengths: Sequence[float],
        *,
        progress: Progress = silent,
    ) -> None:
        self.material, self.run, self.name, self.method, self.progress = material, run, name, method, progress
        self.train = material.train_for(method)
        self.edit = method.inference_edit(self.train)
        self.groups = group_strengths(material.cut, strengths, method.tuning)

    def heads(self) -> Iterator[TrainedHead]:
        """Yield a head for every strength, in their order, as they come from training."""
        tried = self._tried()
        # Only the last group may be smaller, and stays the last: what is left is grouped as it is among all.
        left = [strength for group in self.groups for strength in group if strength not in tried]
        trained = self._trained(left) if left else iter(())
        for group in self.groups:
            for strength in group:
                yield tried[strength] if strength in tried else next(trained)

    def score(self, head: TrainedHead) -> list[Score]:
        """Return what a head does on the test images."""
        if isinstance(head, TriedHead):
            return head.scores
        cut, device = self.material.cut, self.material.device
        return compute_scores(judge_head(cut, head.state, self._held_out, device=device), per_class=False)

    def weights_of(self, head: TrainedHead) -> dict[str, Tensor]:
        """Return a head's weights; of one that was tried apart, its group is trained once more."""
        if not isinstance(head, TriedHead):
            return head.state
        (group,) = (group for group in self.groups if head.strength in group)
        with without_warnings():  # they were told the first time
            again = self.method.train(self.material.cut, self.train, group, progress=self.progress, label=self.name)
            return next(one.state for one in again if one.strength == head.strength)

    def try_group(self, number: int) -> list[dict[str, Any]]:
        """Train one group apart; return what its heads did, as a stage keeps it."""
        return [_to_keep(head, self.score(head)) for head in self._trained(self.groups[number])]

    def _trained(self, strengths: Sequence[float]) -> Iterator[TrainedHead]:
        return self.method.train(
            self.material.cut,
            self.train,
            strengths,
            watch=self.material.validator(self.edit),
            progress=self.progress,
            label=self.name,
        )

    @cached_property
    def _held_out(self) -> HeldOutFeatures:
        return self.material.held_out(self.edit)

    def _tried(self) -> dict[float, TriedHead]:
        """Return what others have tried, in the same groups."""
        tried: dict[float, TriedHead] = {}
        for number, group in enumerate(self.groups):
            stage = Stage(self.name, "strengths", number).name
            if self.run.has(stage):
                heads = {head.strength: head for head in map(_from_kept, self.run.read(stage))}
                tried |= heads if list(heads) == group else {}
        return tried


def _to_keep(head: TrainedHead, scores: Sequence[Score]) -> dict[str, Any]:
    return {
        "strength": head.strength,
        "is_finite": head.is_finite,
        "history": [asdict(seen) for seen in head.history],
        "scores": [asdict(score) for score in scores],
    }


def _from_kept(kept: Mapping[str, Any]) -> TriedHead:
    history = tuple(map(_validation, kept["history"]))
    return TriedHead(kept["strength"], dict, kept["is_finite"], history, [Score(**score) for score in kept["scores"]])


def _validation(kept: Mapping[str, Any]) -> Validation:
    biased = None if kept["biased"] is None else Score(**kept["biased"])
    by_class = {int(label): value for label, value in kept.get("by_class", {}).items()}  # JSON makes texts of numbers
    told = {"clean": Score(**kept["clean"]), "biased": biased, "lost": tuple(kept["lost"]), "by_class": by_class}
    return Validation(**{**kept, **told})
