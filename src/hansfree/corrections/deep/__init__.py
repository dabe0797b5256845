"""Corrections of the whole network, from artifact labels alone."""

from hansfree.corrections.deep.base import DeepCorrection as DeepCorrection, NetworkTuning as NetworkTuning
from hansfree.corrections.deep.images import MIN_GROUP as MIN_GROUP, TrainingImages as TrainingImages
from hansfree.corrections.deep.insertion import (
    Color as Color,
    Insertion as Insertion,
    LowBits as LowBits,
    Measured as Measured,
    Paste as Paste,
    find_insertion as find_insertion,
    from_bytes as from_bytes,
    to_bytes as to_bytes,
    to_pixels as to_pixels,
)
from hansfree.corrections.deep.match import Match as Match
from hansfree.corrections.deep.selection import (
    DeepValidation as DeepValidation,
    ValidationScore as ValidationScore,
    choose_candidate as choose_candidate,
)
from hansfree.corrections.deep.stages import collect_pooled as collect_pooled, find_stages as find_stages
from hansfree.corrections.deep.transplant import Transplant as Transplant
