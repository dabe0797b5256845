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
from hansfree.corrections.erasure import EraseMethod, Eraser, erase
from hansfree.corrections.latent import (
    CAVCorrection,
    LatentCorrection,
    along_cavs,
    count_classes,
    method_named,
    split_name,
    uses_cav,
)
from hansfree.corrections.projections import LEACE, AClArC, OneSidedPClArC, PClArC, Projection, RClArC
from hansfree.corrections.rr_clarc import NamedTarget, Norm, RRClArC, RRClArCStep, Scale
from hansfree.corrections.rrr import RRR
from hansfree.corrections.selection import (
    BalancedRule,
    DerivativeRule,
    OneStandardErrorRule,
    PaperRule,
    Selection,
    SelectionRule,
    Validation,
    Validator,
    check_selectable,
    choose_rule,
    has_counter_examples,
    log_odds,
    make_validator,
    original_predictions,
    probed_images,
)
from hansfree.corrections.strength_path import CorrectedHead, StrengthPath, fit_path
