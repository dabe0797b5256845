"""Did it really forget? A fresh probe of a corrected model, and a relearning test."""

from hansfree.forgetting.probing import Forgetting, Probe, probe_artifact
from hansfree.forgetting.relearning import Relearning, RelearningCurve, relearn, reset_head

__all__ = [
    "Forgetting",
    "Probe",
    "Relearning",
    "RelearningCurve",
    "probe_artifact",
    "relearn",
    "reset_head",
]
