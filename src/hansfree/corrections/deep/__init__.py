"""Corrections of the whole network, from artifact labels alone."""

from hansfree.corrections.deep.base import DeepCorrection, NetworkTuning
from hansfree.corrections.deep.images import MIN_GROUP, TrainingImages
from hansfree.corrections.deep.insertion import (
    Color,
    Insertion,
    LowBits,
    Measured,
    Paste,
    find_insertion,
    from_bytes,
    to_bytes,
    to_pixels,
)
from hansfree.corrections.deep.match import Match
from hansfree.corrections.deep.selection import DeepValidation, ValidationScore, choose_candidate
from hansfree.corrections.deep.stages import collect_pooled, find_stages
from hansfree.corrections.deep.transplant import Transplant
