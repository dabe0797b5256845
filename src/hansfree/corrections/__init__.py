"""Ways to unlearn a bias, one class each: latent (the head, on cached activations) and deep (the whole network)."""

from hansfree.corrections.base import (
    Candidate as Candidate,
    Correction as Correction,
    MethodInfo as MethodInfo,
    Need as Need,
)
from hansfree.corrections.baselines import (
    Augmented as Augmented,
    LogitPairing as LogitPairing,
    PairCorrection as PairCorrection,
    Vanilla as Vanilla,
)
from hansfree.corrections.deep import (
    DeepCorrection as DeepCorrection,
    DeepValidation as DeepValidation,
    Match as Match,
    NetworkTuning as NetworkTuning,
    Transplant as Transplant,
    ValidationScore as ValidationScore,
    choose_candidate as choose_candidate,
)
from hansfree.corrections.deep.images import TrainingImages as TrainingImages
from hansfree.corrections.dfr import DFR as DFR
from hansfree.corrections.erasure import EraseMethod as EraseMethod, Eraser as Eraser, erase as erase
from hansfree.corrections.latent import (
    CAVCorrection as CAVCorrection,
    LatentCorrection as LatentCorrection,
    along_cavs as along_cavs,
    count_classes as count_classes,
    method_named as method_named,
    split_name as split_name,
    uses_cav as uses_cav,
)
from hansfree.corrections.projections import (
    LEACE as LEACE,
    AClArC as AClArC,
    OneSidedPClArC as OneSidedPClArC,
    PClArC as PClArC,
    Projection as Projection,
    RClArC as RClArC,
)
from hansfree.corrections.rr_clarc import (
    NamedTarget as NamedTarget,
    Norm as Norm,
    RRClArC as RRClArC,
    RRClArCStep as RRClArCStep,
    Scale as Scale,
)
from hansfree.corrections.rrr import RRR as RRR
from hansfree.corrections.selection import (
    BalancedRule as BalancedRule,
    DerivativeRule as DerivativeRule,
    OneStandardErrorRule as OneStandardErrorRule,
    PaperRule as PaperRule,
    Selection as Selection,
    SelectionRule as SelectionRule,
    Validation as Validation,
    Validator as Validator,
    check_selectable as check_selectable,
    choose_rule as choose_rule,
    has_counter_examples as has_counter_examples,
    log_odds as log_odds,
    make_validator as make_validator,
    original_predictions as original_predictions,
    probed_images as probed_images,
)
from hansfree.corrections.strength_path import (
    CorrectedHead as CorrectedHead,
    StrengthPath as StrengthPath,
    fit_path as fit_path,
)
