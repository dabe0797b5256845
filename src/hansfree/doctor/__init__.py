"""The CAV doctor: can this direction be trusted without ground truth?

diagnosis = examine_cav(activations, has_artifact)       # artifact and clean images of the biased class
diagnosis.verdict                                        # one or two plain sentences
diagnosis.findings                                       # what they rest on, one number each
"""

from hansfree.doctor.diagnosis import Agreement, CurvePoint, Diagnosis, Finding, Level, WrongMark
from hansfree.doctor.examination import examine_cav
from hansfree.doctor.glance import Glance, expected_cosine, glance_at
from hansfree.doctor.marked import Basis, choose_basis
from hansfree.doctor.thresholds import LIMIT, THRESHOLDS

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
