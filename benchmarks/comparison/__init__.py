"""Compare correction methods over several resamples of a dataset; see ``python -m benchmarks.comparison``."""

from benchmarks.comparison.entries import BASELINES, ENTRIES, METHODS, PAIR_METHODS, REFITS, ComparisonEntry
from benchmarks.comparison.resamples import Pair, Resample, make_resamples
from benchmarks.comparison.scoring import (
    MEASURES,
    Answers,
    Comparison,
    answers,
    compare,
    fit_cav,
    make_validator,
    pick_best,
    run_entry,
)

__all__ = [
    "BASELINES",
    "ENTRIES",
    "MEASURES",
    "METHODS",
    "PAIR_METHODS",
    "REFITS",
    "Answers",
    "Comparison",
    "ComparisonEntry",
    "Pair",
    "Resample",
    "answers",
    "compare",
    "fit_cav",
    "make_resamples",
    "make_validator",
    "pick_best",
    "run_entry",
]
