"""Beyond the paper: better directions and more rivals against its methods, over several draws."""

from hansfree.tournament.contest import judge_model, play
from hansfree.tournament.draws import Draw, make_draws
from hansfree.tournament.entrants import BIASED, DEFAULT, ENTRANTS, PAPER, REFERENCE, REFITS, RIVALS, Entrant
from hansfree.tournament.pasting import paste_artifact
from hansfree.tournament.scoring import MEASURES, Answers, Comparison, Match, Measure, Outcome, compare

__all__ = [
    "BIASED",
    "DEFAULT",
    "ENTRANTS",
    "MEASURES",
    "PAPER",
    "REFERENCE",
    "REFITS",
    "RIVALS",
    "Answers",
    "Comparison",
    "Draw",
    "Entrant",
    "Match",
    "Measure",
    "Outcome",
    "compare",
    "judge_model",
    "make_draws",
    "paste_artifact",
    "play",
]
