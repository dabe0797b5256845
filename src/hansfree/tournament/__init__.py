"""Beyond the paper: better directions and more rivals against its methods, over several draws."""

from hansfree.tournament.contest import judge_model, model_named, play
from hansfree.tournament.draws import Draw, DrawKind, kind_of_draws, make_draws
from hansfree.tournament.entrants import (
    ALONG_PAIRS,
    APART,
    AUGMENTED,
    BALANCED_REFERENCE,
    BIASED,
    CANDIDATES,
    ELECTED,
    ENTRANTS,
    PAIRED,
    PAIRING,
    PAPER,
    REFERENCE,
    REFITS,
    RIVALS,
    Entrant,
)
from hansfree.tournament.pasting import paste_artifact
from hansfree.tournament.scoring import MEASURES, Comparison, DrawAnswers, Match, Measure, Outcome, compare, elect

__all__ = [
    "ALONG_PAIRS",
    "APART",
    "AUGMENTED",
    "BALANCED_REFERENCE",
    "BIASED",
    "CANDIDATES",
    "ELECTED",
    "ENTRANTS",
    "MEASURES",
    "PAIRED",
    "PAIRING",
    "PAPER",
    "REFERENCE",
    "REFITS",
    "RIVALS",
    "Comparison",
    "Draw",
    "DrawAnswers",
    "DrawKind",
    "Entrant",
    "Match",
    "Measure",
    "Outcome",
    "compare",
    "elect",
    "judge_model",
    "kind_of_draws",
    "make_draws",
    "model_named",
    "paste_artifact",
    "play",
]
