"""Who takes part."""

from __future__ import annotations

import pytest

from hansfree.cavs import PairCAV, SignalCAV
from hansfree.corrections import Correction
from hansfree.corrections.training import FineTuning
from hansfree.tournament import ALONG_PAIRS, ENTRANTS, PAPER, REFITS, RIVALS

TUNING = FineTuning(seed=3)


def test_the_papers_method_is_as_the_paper_has_it() -> None:
    paper = ENTRANTS[PAPER]
    method = paper.make(SignalCAV(), TUNING)
    assert method.tuning == TUNING
    assert (method.name, paper.direction, paper.pooling) == ("rr-clarc", "signal", "max")


def test_all_of_the_papers_methods_and_the_named_rivals_take_part() -> None:
    needed = {"vanilla", "rr-clarc", "p-clarc", "a-clarc", "r-clarc", "p-clarc-one-sided", "leace", "dfr", "augmented"}
    assert needed <= {entrant.method for entrant in RIVALS}
    assert {ALONG_PAIRS, PAPER} <= {entrant.name for entrant in RIVALS} & {entrant.name for entrant in REFITS}


@pytest.mark.parametrize("name", ENTRANTS)
def test_an_entrant_is_what_its_name_says(name: str) -> None:
    entrant = ENTRANTS[name]
    method = entrant.make(entrant.cav() if entrant.has_direction else None, TUNING)
    assert isinstance(method, Correction.named(entrant.method))
    assert (method.tuning.optimizer == "converged") == name.endswith(("/converged", "/balanced"))
    assert method.tuning.balanced == ("balanced" in name)
    assert isinstance(entrant.cav(), PairCAV) == ("/pair" in name)
    assert (entrant.pooling == "mean") == ("-mean" in name)
    assert method.tuning.seed == 3
