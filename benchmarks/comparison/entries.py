"""The entries of the comparison: a method, its direction, and how the head is refitted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from hansfree.activations import Pooling
from hansfree.cavs import CAV, PairCAV, SignalCAV
from hansfree.corrections import CAVCorrection, LatentCorrection
from hansfree.corrections.training import FineTuning
from hansfree.evaluation.results import CLEAN_TRAINED, ORIGINAL

Direction = Literal["signal", "pair", "pair-1"]  # signal-CAV; leading changes of pairs; mean change of pairs
Fit = Literal["recipe", "adam", "converged"]  # the paper's recipe; Adam at a higher rate; L-BFGS

_ADAM_RATE = 1e-3
_CAVS = {"signal": SignalCAV, "pair": PairCAV, "pair-1": lambda: PairCAV(count=1)}
_DIRECTIONS = {"signal": "signal", "pair": "subspace of pairs", "pair-1": "mean of pairs"}
_FITS = {"recipe": "", "adam": ", Adam", "converged": ", converged"}


@dataclass(frozen=True, kw_only=True)
class ComparisonEntry:
    """A method with its options; all entries share images, selection rule and clean budget."""

    name: str
    title: str
    method: str  # a registered correction
    direction: Direction = "signal"
    fit: Fit = "recipe"
    pooling: Pooling = "max"  # of the activations to which the CAV is fitted
    balanced: bool = False  # every class has the same weight in the loss

    @property
    def kind(self) -> type[LatentCorrection]:
        """The class of the correction."""
        return LatentCorrection.named(self.method)

    @property
    def has_direction(self) -> bool:
        """Whether the method corrects along a direction."""
        return issubclass(self.kind, CAVCorrection)

    def cav(self) -> CAV:
        """Return the CAV estimator, not fitted."""
        return _CAVS[self.direction]()

    def make(self, cav: CAV | None, tuning: FineTuning) -> LatentCorrection:
        """Return the correction, along a fitted CAV where the method has a direction."""
        tuning = replace(tuning, balanced=self.balanced)
        if self.fit == "adam":
            tuning = replace(tuning, optimizer="adam", learning_rate=_ADAM_RATE)
        if self.fit == "converged":
            tuning = replace(tuning, optimizer="converged")
        return self.kind(tuning=tuning) if cav is None else self.kind(cav, tuning=tuning)


def _entry(
    method: str,
    title: str,
    direction: Direction | None = None,
    *,
    name: str | None = None,
    fit: Fit = "recipe",
    pooling: Pooling = "max",
    balanced: bool = False,
) -> ComparisonEntry:
    """Return an entry; its title names the direction where one is given."""
    words = "" if direction is None else f", {_DIRECTIONS[direction]}{' of mean-pooled images' * (pooling == 'mean')}"
    return ComparisonEntry(
        name=name or method,
        title=f"{title}{words}{_FITS[fit]}{', balanced' * balanced}",
        method=method,
        direction=direction or "signal",
        fit=fit,
        pooling=pooling,
        balanced=balanced,
    )


def _balanced(method: str, title: str, direction: Direction | None = None, *, name: str = "") -> ComparisonEntry:
    """Return an entry with a converged head and balanced classes."""
    return _entry(method, title, direction, name=name or f"{method}/balanced", fit="converged", balanced=True)


BALANCED_CLEAN_TRAINED = f"{CLEAN_TRAINED}/balanced"  # the reference with a converged, balanced head
BASELINES = (ORIGINAL, CLEAN_TRAINED, BALANCED_CLEAN_TRAINED)
"""Models that are not corrected; every table shows them."""

PAPER = "rr-clarc"  # the paper's method: signal-CAV, the paper's recipe
PAIR_DIRECTION = "rr-clarc/pair/balanced"
AUGMENTED = "augmented/balanced"
PAIRING = "logit-pairing/balanced"
CANDIDATES = (PAIR_DIRECTION, PAIRING)  # the default of `hansfree init` where the artifact can be inserted
PICKED = "pick-best"  # per resample the candidate with the better validation score

METHODS = (
    _entry("vanilla", "Vanilla"),
    _entry(PAPER, "RR-ClArC (the paper's)"),
    _entry("p-clarc", "P-ClArC"),
    _entry("a-clarc", "A-ClArC"),
    _entry("r-clarc", "R-ClArC"),
    _entry("p-clarc-one-sided", "P-ClArC, one-sided"),
    _entry("leace", "LEACE"),
    _entry("dfr", "DFR"),
    _entry("augmented", "Augmented"),
    _entry("augmented", "Augmented", name="augmented/converged", fit="converged"),
    _balanced("vanilla", "Vanilla"),
    _balanced("p-clarc", "P-ClArC"),
    _balanced("a-clarc", "A-ClArC"),
    _balanced("leace", "LEACE"),
    _balanced("augmented", "Augmented"),
    _balanced("logit-pairing", "Logit pairing"),
    _entry("rr-clarc", "RR-ClArC", "pair", name="rr-clarc/pair/converged", fit="converged"),
    _balanced("rr-clarc", "RR-ClArC", "pair", name=PAIR_DIRECTION),
)
"""All methods."""

PAIR_METHODS = tuple(
    entry
    for entry in METHODS
    if entry.name in {PAPER, "p-clarc", "a-clarc", "leace", "dfr", "vanilla/balanced", AUGMENTED, *CANDIDATES}
)
"""The paper's methods, LEACE and DFR against methods that use pairs: half of the time."""

REFITS = (
    *(entry for entry in METHODS if entry.method == "rr-clarc"),
    _entry("rr-clarc", "RR-ClArC", "pair-1", name="rr-clarc/pair-1"),
    _entry("rr-clarc", "RR-ClArC", "pair-1", name="rr-clarc/pair-1/converged", fit="converged"),
    _balanced("rr-clarc", "RR-ClArC", "pair-1", name="rr-clarc/pair-1/balanced"),
    _entry("rr-clarc", "RR-ClArC", "signal", name="rr-clarc/signal/adam", fit="adam"),
    _entry("rr-clarc", "RR-ClArC", "signal", name="rr-clarc/signal/converged", fit="converged"),
    _entry("rr-clarc", "RR-ClArC", "signal", name="rr-clarc/signal-mean", pooling="mean"),
    _entry("rr-clarc", "RR-ClArC", "signal", name="rr-clarc/signal-mean/converged", pooling="mean", fit="converged"),
    _entry("rr-clarc", "RR-ClArC", "pair-1", name="rr-clarc/pair-1/adam", fit="adam"),
    _entry("rr-clarc", "RR-ClArC", "pair-1", name="rr-clarc/pair-1-mean", pooling="mean"),
    _entry("rr-clarc", "RR-ClArC", "pair-1", name="rr-clarc/pair-1-mean/converged", pooling="mean", fit="converged"),
    _entry("rr-clarc", "RR-ClArC", "pair", name="rr-clarc/pair"),
    _entry("rr-clarc", "RR-ClArC", "pair", name="rr-clarc/pair/recipe-balanced", balanced=True),
    _balanced("rr-clarc", "RR-ClArC", "signal", name="rr-clarc/signal/balanced"),
    _entry("rr-clarc", "RR-ClArC", "pair", name="rr-clarc/pair-mean/converged", pooling="mean", fit="converged"),
    _entry("rr-clarc-step", "RR-ClArC (step)", "pair-1", name="rr-clarc-step/pair-1"),
    _entry("p-clarc", "P-ClArC", "pair-1", name="p-clarc/pair-1"),
    _entry("p-clarc", "P-ClArC", "pair", name="p-clarc/pair"),
)
"""RR-ClArC with other directions, other pooling and other ways to refit the head."""

ENTRIES = {entry.name: entry for entry in (*METHODS, *REFITS)}
