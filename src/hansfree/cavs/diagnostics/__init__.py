"""CAV diagnostics: can this direction be trusted without ground truth?

diagnosis = diagnose_cav(activations, has_artifact)       # artifact and clean images of the biased class
diagnosis.verdict                                        # one or two plain sentences
diagnosis.findings                                       # what they rest on, one number each
"""

from hansfree.cavs.diagnostics.checks import (
    LEAST,
    choose_basis,
    diagnose_cav,
    expected_cosine,
    overlap_with_class,
    quick_check,
)
from hansfree.cavs.diagnostics.diagnosis import (
    LIMIT,
    THRESHOLDS,
    Diagnosis,
    Finding,
    Level,
    SuspectLabel,
    level_of,
)
from hansfree.cavs.diagnostics.resampling import TARGET, Repeats, angle_to_truth, of_both_halves

__all__ = [
    "LEAST",
    "LIMIT",
    "TARGET",
    "THRESHOLDS",
    "Diagnosis",
    "Finding",
    "Level",
    "Repeats",
    "SuspectLabel",
    "angle_to_truth",
    "choose_basis",
    "diagnose_cav",
    "expected_cosine",
    "level_of",
    "of_both_halves",
    "overlap_with_class",
    "quick_check",
]
