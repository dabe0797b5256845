"""The path of one method along its strengths: trained, validated, selected."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
from torch import Tensor, nn

from hansfree.corrections.selection import Select, Selection, Validation
from hansfree.corrections.training import TrainedHead
from hansfree.errors import import_optional
from hansfree.metrics import Score
from hansfree.reasons import Reason, ReasonCode

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


@dataclass(frozen=True, eq=False)
class CorrectedHead(TrainedHead):
    """A trained head, and the corrected model that it gives."""

    install: Callable[[dict[str, Tensor]], nn.Module]

    @cached_property
    def model(self) -> nn.Module:
        """The corrected model, made on first use."""
        return self.install(self.state)


AnyHead = TypeVar("AnyHead", bound=TrainedHead)


class StrengthTable(list[dict[str, float | bool | None]]):
    """A line per strength, by column; it prints as a table.

    Examples:
        >>> StrengthTable([{"strength": 10.0, "clean": 0.8, "is_best": False}, {"strength": 100.0, "is_best": True}])
        strength  clean  is_best
              10  0.800       no
             100      -      yes
    """

    def __repr__(self) -> str:
        heads = list(dict.fromkeys(name for line in self for name in line))
        rows = [heads, *([_write(name, line.get(name)) for name in heads] for line in self)]
        widths = [max(map(len, column)) for column in zip(*rows)]
        return "\n".join("  ".join(map(str.rjust, row, widths)) for row in rows)

    def to_frame(self) -> DataFrame:
        """Return it as a pandas table."""
        frame: DataFrame = import_optional("pandas").DataFrame(list(self))
        return frame


def _write(name: str, value: float | bool | None) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "-"
    return f"{value:g}" if name == "strength" else f"{value:.3f}"


@dataclass(frozen=True, eq=False)
class StrengthPath(Generic[AnyHead]):
    """Every strength of one method with its validations and scores; only the selected head's weights are stored."""

    strengths: tuple[float, ...]
    histories: tuple[tuple[Validation, ...], ...]  # per strength, after every epoch
    scores: tuple[list[Score], ...]  # per strength, on the test images
    selection: Selection
    best: AnyHead | None  # None where no strength was admissible: `selection` has the reason

    @property
    def final(self) -> Validation | None:
        """The last validation of the selected head."""
        return None if self.selection.index is None else self.histories[self.selection.index][-1]

    def table(self) -> StrengthTable:
        """Return a line per strength: balanced accuracies on validation images, and scores on test images if any."""
        return StrengthTable(
            {
                "strength": strength,
                "clean": history[-1].clean.value,
                "biased": None if (biased := history[-1].biased) is None else biased.value,
                "derivative": history[-1].derivative,
                "is_best": index == self.selection.index,
                **{score.metric: score.value for score in scores if score.group is None},
            }
            for index, (strength, history, scores) in enumerate(zip(self.strengths, self.histories, self.scores))
        )

    def plot(self) -> Figure:
        """Draw the balanced accuracies on validation images by strength; a line marks the selected one."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 3.5), layout="constrained")
        axes, finals = figure.subplots(), [history[-1] for history in self.histories]
        axes.plot(self.strengths, [final.clean.value for final in finals], "o-", label="without the artifact")
        biased = [np.nan if final.biased is None else final.biased.value for final in finals]
        axes.plot(self.strengths, biased, "s-", label="with the artifact")
        if self.best is not None:
            axes.axvline(self.best.strength, linestyle=":", color="gray", label=f"selected: {self.best.strength:g}")
        if min(self.strengths, default=0.0) > 0:
            axes.set_xscale("log")
        axes.set(xlabel="strength", ylabel="balanced accuracy, validation", ylim=(0, 1.02))
        axes.legend()
        return figure


def fit_path(
    candidates: Iterable[AnyHead], select: Select, *, score: Callable[[AnyHead], list[Score]] | None = None
) -> StrengthPath[AnyHead]:
    """Train, validate and select, keeping only candidates that can still be selected.

    Args:
        candidates: with validations in their histories, from the weakest strength to the strongest.
        select: as from `SelectionRule.selector`.
        score: on test images.
    """
    strengths: list[float] = []
    histories: list[tuple[Validation, ...]] = []
    scores: list[list[Score]] = []
    stored: dict[int | None, AnyHead] = {}
    selection = Selection(None, Reason(ReasonCode.NO_CANDIDATE))
    for head in candidates:
        strengths.append(head.strength)
        histories.append(head.history)
        scores.append([] if score is None else score(head))
        selection = select([history[-1] for history in histories])
        stored[len(strengths) - 1] = head
        stored = {i: one for i, one in stored.items() if i == selection.index or i in selection.contenders}
    return StrengthPath(tuple(strengths), tuple(histories), tuple(scores), selection, stored.get(selection.index))
