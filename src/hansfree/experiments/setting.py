"""What an experiment is about: a biased model, its data, and the ways in which it is to be corrected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import nn

from hansfree.cavs import CAV
from hansfree.corrections import Correction, method_named, split_name
from hansfree.errors import OptionError
from hansfree.experiments.concepts import Concept
from hansfree.experiments.plans import Grid
from hansfree.metrics import MIN_GROUP
from hansfree.selection import BalancedRule, SelectionRule, check_selectable, choose_rule
from hansfree.selection.rules import has_counter_examples
from hansfree.splitting import Train
from hansfree.studies import BiasedData
from hansfree.training import FineTuning


def tell_no_pairs() -> str:
    """Return what to say to somebody who asks for pairs of data that have none."""
    cavs = [repr(name) for name in CAV.members() if name not in CAV.from_marks()]
    methods = [repr(name) for name, member in Correction.members().items() if member.uses_pairs]
    return (
        "Pairs are the same training images without and with the artifact, but the artifact of these data cannot be "
        "put into images: say what to insert (artifact.insert in a run file), or leave out what learns from pairs "
        f"({', '.join(cavs)} as a CAV; {', '.join(methods)} as a method)."
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Setting:
    """A biased model, the data that show it, and how it is to be corrected."""

    name: str
    data: BiasedData
    model: nn.Module
    layer: str
    tuning: FineTuning
    cav: str = "signal"  # along which all models are judged, too
    further_cavs: tuple[str, ...] = ()  # that corrections go along as well
    reference: Callable[[], nn.Module | None] = lambda: None  # makes the model that never saw the artifact, when asked
    grid: Grid = "own"  # each method's own strengths, or the paper's in the paper's units
    strengths: Mapping[str, Sequence[float]] = field(default_factory=dict)  # per method, instead of the grid
    rule: SelectionRule = field(default_factory=BalancedRule)  # replaced where the data cannot feed it
    repeats: int = 1  # seeds of the fine-tuning; the strength is chosen with the first
    train: Train = "all"  # that follows the layer, or only the last module with parameters
    workers: int = 0  # processes that read images
    removed: tuple[Concept, ...] = ()  # whose directions corrections remove together with the artifact's own
    protected: tuple[Concept, ...] = ()  # whose directions are taken out of what is removed

    def __post_init__(self) -> None:
        """Refuse data of which no strength could be chosen."""
        if self.repeats < 1:
            raise OptionError(f"repeats is {self.repeats}; at least 1 is needed.")
        if self.repeats > 1 and self.tuning.optimizer == "converged":
            raise OptionError(f"repeats is {self.repeats}, but optimizer='converged' depends on no seed: 1 is enough.")
        kinds = map(CAV.named, (self.cav, *self.further_cavs))
        if any(kind.needs_pairs for kind in kinds) and self.data.train_biased is None:
            raise OptionError(tell_no_pairs())
        check_selectable(self.data)
        if not (self.rule.needs_derivative or has_counter_examples(self.data)):
            rule = choose_rule(self.data, budget=self.rule.budget, class_budgets=self.rule.class_budgets)
            object.__setattr__(self, "rule", rule)  # the dataclass is frozen; this is its constructor's last step

    @property
    def uncounted(self) -> tuple[int, ...]:
        """Return the classes with too few validation images to choose a strength by."""
        classes, counts = np.unique(self.data.val_clean.labels, return_counts=True)
        return tuple(int(label) for label in classes[counts < MIN_GROUP])


@dataclass(frozen=True, eq=False, kw_only=True)
class Treatment:
    """A correction with options of its own; a plain method is the treatment called like the family's member."""

    name: str  # of its stage, its weights and its heatmaps
    make: Callable[..., Correction]  # (cav=, images=, tuning=) -> the correction
    cav: str | None = None  # another direction than the setting's
    method: str | None = None  # what its rows say; None: the correction's own name
    strengths: Sequence[float] | None = None  # None: the setting's, or else the method's own grid
    uses_masks: bool = False
    depends_on_seed: bool = True  # else it is not repeated: equal repeats would look like evidence

    @classmethod
    def plain(cls, name: str, *, grid: Grid = "own") -> Treatment:
        """Return a registered correction as it is, or as the paper measures it; ``rr-clarc@svm``: along that CAV."""
        member, cav = method_named(name), split_name(name)[1]
        make, strengths = (member.for_paper, member.paper_grid) if grid == "paper" else (member.for_run, None)
        return cls(
            name=name,
            make=make,
            cav=cav,
            method=name,
            strengths=strengths,
            uses_masks=member.uses_masks,
            depends_on_seed=member.depends_on_seed,
        )
