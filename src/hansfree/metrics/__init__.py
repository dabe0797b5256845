"""Metrics: what a model does with and without the artifact, each number with an honest standard error.

To add one, write a class with ``compute`` and import it here; scores and tables follow the order of these imports.
"""

from hansfree.metrics.accuracy import (
    AccuracyBiased,
    AccuracyClean,
    AccuracyWorstGroup,
    AUROCBiased,
    AUROCClean,
    BalancedAccuracyBiased,
    BalancedAccuracyClean,
    chance_level,
    class_group,
    group_name,
    majority_rate,
)
from hansfree.metrics.base import (
    MIN_GROUP,
    NO_PREDICTION,
    Condition,
    Evidence,
    Metric,
    Score,
    Unknown,
    compute_scores,
    find_unknown,
    predict_classes,
)
from hansfree.metrics.comparison import (
    Answers,
    Difference,
    compare_answers,
    compare_classes,
    compare_pulls,
    holm,
    lost_classes,
    mcnemar,
    paired_balanced_difference,
    paired_difference,
    score_intervals,
)
from hansfree.metrics.effects import TCAV, FlipRate, ProbabilityChange, TCAVPositions, TCAVSensitivity, TCAVZeroShare
from hansfree.metrics.intervals import (
    LEVEL,
    STDERRS,
    Interval,
    balanced_difference_interval,
    balanced_interval,
    difference_interval,
    share_interval,
)

# isort: split
from hansfree.metrics.effects import ArtifactRelevance

# isort: split
from hansfree.metrics.classes import (  # last: many rows, a score for every class
    AUROCClassBiased,
    AUROCClassClean,
    SensitivityBiased,
    SensitivityClean,
    SpecificityBiased,
    SpecificityClean,
)

__all__ = [
    "LEVEL",
    "MIN_GROUP",
    "NO_PREDICTION",
    "STDERRS",
    "TCAV",
    "AUROCBiased",
    "AUROCClassBiased",
    "AUROCClassClean",
    "AUROCClean",
    "AccuracyBiased",
    "AccuracyClean",
    "AccuracyWorstGroup",
    "Answers",
    "ArtifactRelevance",
    "BalancedAccuracyBiased",
    "BalancedAccuracyClean",
    "Condition",
    "Difference",
    "Evidence",
    "FlipRate",
    "Interval",
    "Metric",
    "ProbabilityChange",
    "Score",
    "SensitivityBiased",
    "SensitivityClean",
    "SpecificityBiased",
    "SpecificityClean",
    "TCAVPositions",
    "TCAVSensitivity",
    "TCAVZeroShare",
    "Unknown",
    "balanced_difference_interval",
    "balanced_interval",
    "chance_level",
    "class_group",
    "compare_answers",
    "compare_classes",
    "compare_pulls",
    "compute_scores",
    "difference_interval",
    "find_unknown",
    "group_name",
    "holm",
    "lost_classes",
    "majority_rate",
    "mcnemar",
    "paired_balanced_difference",
    "paired_difference",
    "predict_classes",
    "score_intervals",
    "share_interval",
]
