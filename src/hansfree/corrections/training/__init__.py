"""Training: heads on the cache, many strengths at once; and whole models, to be corrected."""

from hansfree.corrections.training.config import FineTuning, Optimizer, even_weights, recipe_for, tuning_for
from hansfree.corrections.training.head_loop import (
    HeadBatch,
    Heads,
    TrainedHead,
    Watch,
    WeightedHead,
    group_strengths,
    push,
    train_heads,
    warn_of_strengths,
)
from hansfree.corrections.training.model_loop import Pretraining, pretrain
from hansfree.corrections.training.solver import check_double, check_solvable, minimise

__all__ = [
    "FineTuning",
    "HeadBatch",
    "Heads",
    "Optimizer",
    "Pretraining",
    "TrainedHead",
    "Watch",
    "WeightedHead",
    "check_double",
    "check_solvable",
    "even_weights",
    "group_strengths",
    "minimise",
    "pretrain",
    "push",
    "recipe_for",
    "train_heads",
    "tuning_for",
    "warn_of_strengths",
]
