"""Metrics: what a model does with and without the artifact, each score with its standard error.

To add one, write a class with ``compute`` and import it here. Scores and tables follow the order
of these imports, the scores of single classes last.
"""

from hansfree._internal.statistics import (
    holm as holm,
    mcnemar as mcnemar,
    paired_balanced_difference as paired_balanced_difference,
    paired_difference as paired_difference,
)
from hansfree.metrics.accuracy import (
    BalancedAccuracyBiased as BalancedAccuracyBiased,
    BalancedAccuracyClean as BalancedAccuracyClean,
    accuracies as accuracies,
    chance_level as chance_level,
    log_odds as log_odds,
    majority_rate as majority_rate,
)
from hansfree.metrics.base import (
    MIN_GROUP as MIN_GROUP,
    NO_PREDICTION as NO_PREDICTION,
    Condition as Condition,
    Evidence as Evidence,
    Metric as Metric,
    NotAvailable as NotAvailable,
    Score as Score,
    check_biased_class as check_biased_class,
    compute_scores as compute_scores,
    find_unavailable as find_unavailable,
    large_classes as large_classes,
    predict_classes as predict_classes,
)
from hansfree.metrics.comparison import (
    Answers as Answers,
    Difference as Difference,
    compare_answers as compare_answers,
    compare_classes as compare_classes,
    compare_probability_changes as compare_probability_changes,
    lost_classes as lost_classes,
    score_intervals as score_intervals,
)
from hansfree.metrics.effects import (
    ArtifactRelevance as ArtifactRelevance,
    FlipRate as FlipRate,
    ProbabilityChange as ProbabilityChange,
    is_flipped as is_flipped,
)
