"""CAV diagnostics: can this direction be trusted without ground truth?

diagnosis = diagnose_cav(activations, has_artifact)       # artifact and clean images of the biased class
diagnosis.level, diagnosis.findings                      # what it rests on, one number each
hansfree.report.describe_diagnosis(diagnosis)            # one or two plain sentences
"""

from hansfree.cavs.diagnostics.checks import diagnose_cav, expected_cosine, overlap_with_class, quick_check
from hansfree.cavs.diagnostics.diagnosis import (
    LEAST,
    TARGET,
    THRESHOLDS,
    Diagnosis,
    Finding,
    Level,
    SuspectLabel,
    level_of,
)
from hansfree.cavs.diagnostics.resampling import Repeats, angle_to_truth, of_both_halves
