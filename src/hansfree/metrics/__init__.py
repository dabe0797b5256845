"""Metrics: what a model does with and without the artifact, each score with its standard error.

To add one, write a class with ``compute`` and import it here. Scores and tables follow the order
of these imports, the scores of single classes last.
"""

from hansfree._internal.statistics import holm, mcnemar, paired_balanced_difference, paired_difference
from hansfree.metrics.accuracy import (
    BalancedAccuracyBiased,
    BalancedAccuracyClean,
    accuracies,
    chance_level,
    log_odds,
    majority_rate,
)
from hansfree.metrics.base import (
    MIN_GROUP,
    NO_PREDICTION,
    Condition,
    Evidence,
    Metric,
    NotAvailable,
    Score,
    check_biased_class,
    compute_scores,
    find_unavailable,
    large_classes,
    predict_classes,
)
from hansfree.metrics.comparison import (
    Answers,
    Difference,
    compare_answers,
    compare_classes,
    compare_probability_changes,
    lost_classes,
    score_intervals,
)
from hansfree.metrics.effects import ArtifactRelevance, FlipRate, ProbabilityChange, is_flipped
