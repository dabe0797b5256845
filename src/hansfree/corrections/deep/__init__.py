"""Corrections of the whole network, from artifact labels alone."""

from hansfree.corrections.deep.base import DeepCorrection
from hansfree.corrections.deep.loop import NetworkTuning
from hansfree.corrections.deep.match import Match
from hansfree.corrections.deep.selection import DeepValidation, ValidationScore, choose_candidate
from hansfree.corrections.deep.transplant import Transplant

__all__ = [
    "DeepCorrection",
    "DeepValidation",
    "Match",
    "NetworkTuning",
    "Transplant",
    "ValidationScore",
    "choose_candidate",
]
