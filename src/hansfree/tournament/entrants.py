"""Who takes part: a method, the direction it is given, and how its head is refitted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from hansfree.activations import Pooling
from hansfree.cavs import CAV, PairCAV, SignalCAV
from hansfree.corrections import CAVCorrection, Correction
from hansfree.results import CLEAN_TRAINED, ORIGINAL
from hansfree.training import FineTuning

Direction = Literal["signal", "pair", "pair-1"]  # of marked images; leading changes of pairs; their mean change alone
Fit = Literal["recipe", "adam", "converged"]  # the paper's; larger steps of Adam; the minimum itself

_ADAM_RATE = 1e-3


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """One competitor; all have the same images, validation rule and clean budget."""

    name: str
    title: str
    method: str  # a registered correction
    direction: Direction = "signal"
    fit: Fit = "recipe"
    pooling: Pooling = "max"  # of the activations that the direction is learned from
    balanced: bool = False  # every class counts the same in the loss

    @property
    def kind(self) -> type[Correction]:
        """The correction's class."""
        return Correction.named(self.method)

    @property
    def has_direction(self) -> bool:
        """Whether it corrects along a direction."""
        return issubclass(self.kind, CAVCorrection)

    def cav(self) -> CAV:
        """Return the direction's estimator, not fitted."""
        return {"signal": SignalCAV(), "pair": PairCAV(), "pair-1": PairCAV(count=1)}[self.direction]

    def make(self, cav: CAV | None, tuning: FineTuning) -> Correction:
        """Return the correction, along a fitted direction where it has one."""
        tuning = replace(tuning, balanced=self.balanced)
        if self.fit == "adam":
            tuning = replace(tuning, optimizer="adam", learning_rate=_ADAM_RATE)
        if self.fit == "converged":
            tuning = replace(tuning, optimizer="converged")
        return self.kind(tuning=tuning) if cav is None else self.kind(cav, tuning=tuning)  # type: ignore[call-arg]


def _rr(name: str, words: str, **options: Any) -> Entrant:
    return Entrant(name=name, title=f"RR-ClArC, {words}", method="rr-clarc", **options)


def _balanced(name: str, title: str) -> Entrant:
    return Entrant(
        name=f"{name}/balanced", title=f"{title}, solved, balanced", method=name, fit="converged", balanced=True
    )


BIASED, REFERENCE = ORIGINAL, CLEAN_TRAINED
BALANCED_REFERENCE = f"{CLEAN_TRAINED}/balanced"  # its head solved and balanced on the same images
APART = (BIASED, REFERENCE, BALANCED_REFERENCE)
"""Who does not compete, and stands in every table."""
PAPER = "rr-clarc"  # the paper's own method: signal-CAV, its recipe
ALONG_PAIRS = "rr-clarc/pair/balanced"  # chosen on validation images (docs/decisions/0034)
AUGMENTED = "augmented/balanced"
PAIRING = "logit-pairing/balanced"
CANDIDATES = (ALONG_PAIRS, PAIRING)  # what the file that `init` writes lets take part, where the artifact can be put in
ELECTED = "elected"  # hansfree's default there: in every draw the candidate that is better on validation images

RIVALS = (
    Entrant(name="vanilla", title="Vanilla", method="vanilla"),
    Entrant(name=PAPER, title="RR-ClArC (the paper's)", method="rr-clarc"),
    Entrant(name="p-clarc", title="P-ClArC", method="p-clarc"),
    Entrant(name="a-clarc", title="A-ClArC", method="a-clarc"),
    Entrant(name="r-clarc", title="R-ClArC", method="r-clarc"),
    Entrant(name="p-clarc-one-sided", title="P-ClArC, one-sided", method="p-clarc-one-sided"),
    Entrant(name="leace", title="LEACE", method="leace"),
    Entrant(name="dfr", title="DFR", method="dfr"),
    Entrant(name="augmented", title="Augmented", method="augmented"),
    Entrant(name="augmented/converged", title="Augmented, solved", method="augmented", fit="converged"),
    _balanced("vanilla", "Vanilla"),
    _balanced("p-clarc", "P-ClArC"),
    _balanced("a-clarc", "A-ClArC"),
    _balanced("leace", "LEACE"),
    _balanced("augmented", "Augmented"),
    _balanced("logit-pairing", "Logit pairing"),
    _rr("rr-clarc/pair/converged", "subspace of pairs, solved", direction="pair", fit="converged"),
    _rr(ALONG_PAIRS, "subspace of pairs, solved, balanced", direction="pair", fit="converged", balanced=True),
)
"""Who takes part in the tournament."""

PAIRED = tuple(
    entrant
    for entrant in RIVALS
    if entrant.name in {PAPER, "p-clarc", "a-clarc", "leace", "dfr", "vanilla/balanced", AUGMENTED, *CANDIDATES}
)
"""The paper's methods, LEACE and DFR against what can be done with pairs: a tournament in half of the time."""

REFITS = (
    *(entrant for entrant in RIVALS if entrant.method == "rr-clarc"),
    _rr("rr-clarc/pair-1", "mean of pairs", direction="pair-1"),
    _rr("rr-clarc/pair-1/converged", "mean of pairs, solved", direction="pair-1", fit="converged"),
    _rr(
        "rr-clarc/pair-1/balanced",
        "mean of pairs, solved, balanced",
        direction="pair-1",
        fit="converged",
        balanced=True,
    ),
    _rr("rr-clarc/signal/adam", "signal, Adam", fit="adam"),
    _rr("rr-clarc/signal/converged", "signal, solved", fit="converged"),
    _rr("rr-clarc/signal-mean", "signal of means", pooling="mean"),
    _rr("rr-clarc/signal-mean/converged", "signal of means, solved", pooling="mean", fit="converged"),
    _rr("rr-clarc/pair-1/adam", "mean of pairs, Adam", direction="pair-1", fit="adam"),
    _rr("rr-clarc/pair-1-mean", "mean of mean-pooled pairs", direction="pair-1", pooling="mean"),
    _rr(
        "rr-clarc/pair-1-mean/converged",
        "mean of mean-pooled pairs, solved",
        direction="pair-1",
        pooling="mean",
        fit="converged",
    ),
    _rr("rr-clarc/pair", "subspace of pairs", direction="pair"),
    _rr("rr-clarc/pair/recipe-balanced", "subspace of pairs, balanced", direction="pair", balanced=True),
    _rr("rr-clarc/signal/balanced", "signal, solved, balanced", fit="converged", balanced=True),
    _rr(
        "rr-clarc/pair-mean/converged",
        "subspace of mean-pooled pairs, solved",
        direction="pair",
        pooling="mean",
        fit="converged",
    ),
    Entrant(
        name="rr-clarc-step/pair-1",
        title="RR-ClArC (step), mean of pairs",
        method="rr-clarc-step",
        direction="pair-1",
    ),
    Entrant(name="p-clarc/pair-1", title="P-ClArC, mean of pairs", method="p-clarc", direction="pair-1"),
    Entrant(name="p-clarc/pair", title="P-ClArC, subspace of pairs", method="p-clarc", direction="pair"),
)
"""The same method with other directions, other pooling and other ways to refit the head."""

ENTRANTS = {entrant.name: entrant for entrant in (*RIVALS, *REFITS)}
