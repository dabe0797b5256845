"""Ways to unlearn a bias, one class each: latent (the head, on cached activations) and deep (the whole network)."""

from hansfree.corrections.base import Candidate, Correction, MethodInfo, Need
from hansfree.corrections.baselines import Augmented, LogitPairing, PairCorrection, Vanilla
from hansfree.corrections.deep import (
    DeepCorrection,
    DeepValidation,
    Match,
    NetworkTuning,
    Transplant,
    ValidationScore,
    choose_candidate,
)
from hansfree.corrections.deep.images import TrainingImages
from hansfree.corrections.dfr import DFR
from hansfree.corrections.latent import (
    CAVCorrection,
    LatentCorrection,
    along_cavs,
    count_classes,
    method_named,
    split_name,
    uses_cav,
)
from hansfree.corrections.path import StrengthPath, fit_path
from hansfree.corrections.projections import LEACE, AClArC, OneSidedPClArC, PClArC, Projection, RClArC
from hansfree.corrections.rr_clarc import NamedTarget, Norm, RRClArC, RRClArCStep, Scale
from hansfree.corrections.rrr import RRR
from hansfree.corrections.selection import (
    BalancedRule,
    OneStandardErrorRule,
    Selection,
    SelectionRule,
    Validation,
    Validator,
    check_selectable,
    choose_rule,
    has_counter_examples,
    log_odds,
    original_predictions,
)

__all__ = [
    "DFR",
    "LEACE",
    "RRR",
    "AClArC",
    "Augmented",
    "BalancedRule",
    "CAVCorrection",
    "Candidate",
    "Correction",
    "DeepCorrection",
    "DeepValidation",
    "LatentCorrection",
    "LogitPairing",
    "Match",
    "MethodInfo",
    "NamedTarget",
    "Need",
    "NetworkTuning",
    "Norm",
    "OneSidedPClArC",
    "OneStandardErrorRule",
    "PClArC",
    "PairCorrection",
    "Projection",
    "RClArC",
    "RRClArC",
    "RRClArCStep",
    "Scale",
    "Selection",
    "SelectionRule",
    "StrengthPath",
    "TrainingImages",
    "Transplant",
    "Validation",
    "ValidationScore",
    "Validator",
    "Vanilla",
    "along_cavs",
    "check_selectable",
    "choose_candidate",
    "choose_rule",
    "count_classes",
    "fit_path",
    "has_counter_examples",
    "log_odds",
    "method_named",
    "original_predictions",
    "split_name",
    "uses_cav",
]
