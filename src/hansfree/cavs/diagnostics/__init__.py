"""CAV diagnostics: can this direction be trusted without ground truth?

diagnosis = diagnose_cav(activations, has_artifact)       # artifact and clean images of the biased class
diagnosis.level, diagnosis.findings                      # what it rests on, one number each
hansfree.report.describe_diagnosis(diagnosis)            # one or two plain sentences
"""

from hansfree.cavs.diagnostics.checks import (
    diagnose_cav as diagnose_cav,
    expected_cosine as expected_cosine,
    overlap_with_class as overlap_with_class,
    quick_check as quick_check,
)
from hansfree.cavs.diagnostics.diagnosis import (
    LEAST as LEAST,
    TARGET as TARGET,
    THRESHOLDS as THRESHOLDS,
    Diagnosis as Diagnosis,
    Finding as Finding,
    Level as Level,
    SuspectLabel as SuspectLabel,
    level_of as level_of,
)
from hansfree.cavs.diagnostics.resampling import (
    Repeats as Repeats,
    angle_to_truth as angle_to_truth,
    of_both_halves as of_both_halves,
)
