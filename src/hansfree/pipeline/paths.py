"""A correction along its strengths in a run: one contract for latent and deep methods, and the latent one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from pydantic import TypeAdapter
from torch import Tensor, nn

from hansfree._internal.progress import Progress, silent, without_warnings
from hansfree._internal.store import RunStore
from hansfree.corrections import CAVCorrection, LatentCorrection, Need, Selection, Validation
from hansfree.corrections.training import TrainedHead, group_strengths
from hansfree.evaluation import HeldOutFeatures, judge_head
from hansfree.metrics import Evidence, Score, compute_scores
from hansfree.pipeline.config import AnyCorrection
from hansfree.pipeline.workspace import Workspace

MethodT = TypeVar("MethodT", bound=AnyCorrection)


class Task(NamedTuple):
    """A group of a method's strengths, a further seed of it, or without a kind its selection and scores."""

    method: str
    kind: Literal["strengths", "seed"] | None = None
    number: int = 0

    @property
    def name(self) -> str:
        """The stage's name in the run."""
        return self.method if self.kind is None else f"{self.method} {self.kind} {self.number}"


class MethodPath(ABC, Generic[MethodT]):
    """One method of a run: it trains a candidate per strength, selects one on validation images, and evaluates it.

    Args:
        name: Of the method's stage.
        strengths: To try, in order; one number that is not used for a method without strength.
    """

    def __init__(
        self,
        workspace: Workspace,
        run: RunStore,
        name: str,
        method: MethodT,
        strengths: Sequence[float],
        *,
        progress: Progress = silent,
    ) -> None:
        self.workspace, self.run, self.name, self.progress = workspace, run, name, progress
        self.method, self.strengths = method, strengths

    @abstractmethod
    def candidates(self) -> Iterator[TrainedHead]:
        """Yield a candidate for every strength, in order, with its validations in the history."""

    @abstractmethod
    def score(self, candidate: TrainedHead) -> list[Score]:
        """Return a candidate's scores on the test images."""

    def select(self, finals: Sequence[Validation]) -> Selection:
        """Select among the candidates so far, given the last validation of each."""
        rule, original = self.workspace.setting.rule, self.workspace.original_validation
        return rule.selector(original, has_strength=self.method.info.has_strength)(finals)

    @abstractmethod
    def model_of(self, candidate: TrainedHead) -> nn.Module:
        """Return the whole corrected model of a candidate."""

    @abstractmethod
    def evidence(self, candidate: TrainedHead, model: nn.Module) -> Evidence:
        """Return all evidence on the selected candidate from the test images."""

    @abstractmethod
    def repeat(self) -> Evidence | None:
        """Train the first strength only, without selection, and return its evidence; None if it diverged."""

    @property
    @abstractmethod
    def remark(self) -> str:
        """What the report says beside the method's results."""

    def close(self) -> None:
        """Delete temporary files of a finished stage."""


@dataclass(frozen=True, eq=False)
class RecordedCandidate(TrainedHead):
    """A head that another task trained: its scores are stored, its weights are not."""

    scores: list[Score]

    def to_json(self) -> dict[str, Any]:
        """Return what the run store keeps."""
        return {
            "strength": self.strength,
            "is_finite": self.is_finite,
            "history": [asdict(validation) for validation in self.history],
            "scores": [asdict(score) for score in self.scores],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> RecordedCandidate:
        """Rebuild a candidate from `to_json`."""
        history = TypeAdapter(tuple[Validation, ...]).validate_python(content["history"])
        return cls(content["strength"], dict, content["is_finite"], history, [Score(**s) for s in content["scores"]])


class HeadPath(MethodPath[LatentCorrection]):
    """The heads of a latent method, trained on cached activations."""

    def candidates(self) -> Iterator[TrainedHead]:
        """Yield heads as they come from training; those that other tasks have trained come from the run store."""
        recorded = self._recorded()
        # Only the last group may be smaller, and stays the last: what is left is grouped as it is among all.
        left = [strength for group in self.groups for strength in group if strength not in recorded]
        trained = self._train(left) if left else iter(())
        for group in self.groups:
            for strength in group:
                yield recorded[strength] if strength in recorded else next(trained)

    def score(self, candidate: TrainedHead) -> list[Score]:
        """Return a head's scores on the test images."""
        if isinstance(candidate, RecordedCandidate):
            return candidate.scores
        evidence = judge_head(self.workspace.cut, candidate.state, self._held_out, device=self.workspace.device)
        return compute_scores(evidence, per_class=False)

    def model_of(self, candidate: TrainedHead) -> nn.Module:
        """Return the model with a head."""
        state = self._state_of(candidate)
        return self.method.install(self.workspace.setting.model, self.workspace.cut, self._images, state)

    def evidence(self, candidate: TrainedHead, model: nn.Module) -> Evidence:
        """Return the evidence; with heatmaps, unless their masks were localised by what the method trained on."""
        is_circular = Need.MASKS in self.method.info.needs or isinstance(self.method, CAVCorrection)
        explained = model if self.workspace.data.has_masks or not is_circular else None
        return self.workspace.judge(self._state_of(candidate), self._edit, explained=explained)

    def repeat(self) -> Evidence:
        """Train one head and return its evidence, without heatmaps."""
        (head,) = self._train(self.strengths[:1], is_validated=False)
        return self.workspace.judge(head.state, self._edit)

    @property
    def remark(self) -> str:
        """The method's own remark."""
        held_out = self.workspace.activations
        return self.method.remark(self._images, clean=held_out["test_clean"], biased=held_out.get("test_biased"))

    @cached_property
    def groups(self) -> list[list[float]]:
        """The strengths that are trained together; each group can be a task of its own."""
        return group_strengths(self.workspace.cut, self.strengths, self.method.tuning)

    def train_group(self, number: int) -> list[dict[str, Any]]:
        """Train one group; return its candidates for the run store."""
        return [
            RecordedCandidate(head.strength, dict, head.is_finite, head.history, self.score(head)).to_json()
            for head in self._train(self.groups[number])
        ]

    def _train(self, strengths: Sequence[float], *, is_validated: bool = True) -> Iterator[TrainedHead]:
        return self.method.train(
            self.workspace.cut,
            self._images,
            strengths,
            watch=self.workspace.validator(self._edit) if is_validated else None,
            progress=self.progress,
            label=self.name,
        )

    @cached_property
    def _images(self) -> Any:
        return self.workspace.train_for(self.method)

    @cached_property
    def _edit(self) -> nn.Module | None:
        return self.method.edit(self._images)

    @cached_property
    def _held_out(self) -> HeldOutFeatures:
        return self.workspace.held_out(self._edit)

    def _recorded(self) -> dict[float, RecordedCandidate]:
        """Return the candidates of finished tasks, if their groups are the same."""
        found: dict[float, RecordedCandidate] = {}
        for number, group in enumerate(self.groups):
            stage = Task(self.name, "strengths", number).name
            if self.run.has(stage):
                heads = [RecordedCandidate.from_json(content) for content in self.run.read(stage)]
                if [head.strength for head in heads] == group:
                    found |= {head.strength: head for head in heads}
        return found

    def _state_of(self, candidate: TrainedHead) -> dict[str, Tensor]:
        """Return a head's weights; if another task trained it, its group is trained again, once."""
        if not isinstance(candidate, RecordedCandidate):
            return candidate.state
        if candidate.strength not in self._retrained:
            (group,) = (group for group in self.groups if candidate.strength in group)
            with without_warnings():  # they were logged the first time
                heads = self._train(group, is_validated=False)
                self._retrained[candidate.strength] = next(
                    head.state for head in heads if head.strength == candidate.strength
                )
        return self._retrained[candidate.strength]

    @cached_property
    def _retrained(self) -> dict[float, dict[str, Tensor]]:
        return {}
