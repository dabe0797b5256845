"""The CAV doctor: can this direction be trusted without ground truth?

diagnosis = examine_cav(activations, has_artifact)       # artifact and clean images of the biased class
diagnosis.verdict                                        # one or two plain sentences
diagnosis.findings                                       # what they rest on, one number each
"""

from hansfree.cavs.diagnostics.checks import Basis, Glance, choose_basis, examine_cav, expected_cosine, glance_at
from hansfree.cavs.diagnostics.diagnosis import (
    LIMIT,
    THRESHOLDS,
    Agreement,
    CurvePoint,
    Diagnosis,
    Finding,
    Level,
    WrongMark,
)

__all__ = [
    "LIMIT",
    "THRESHOLDS",
    "Agreement",
    "Basis",
    "CurvePoint",
    "Diagnosis",
    "Finding",
    "Glance",
    "Level",
    "WrongMark",
    "choose_basis",
    "examine_cav",
    "expected_cosine",
    "glance_at",
]
