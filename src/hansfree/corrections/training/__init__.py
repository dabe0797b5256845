"""Training: heads on the cache, many strengths at once; and whole models, to be corrected."""

from hansfree.corrections.training.config import (
    FineTuning,
    Optimizer,
    balanced_weights,
)
from hansfree.corrections.training.head_loop import (
    FunctionalHead,
    HeadBatch,
    Heads,
    SolverSupport,
    TrainedHead,
    Watch,
    group_strengths,
    push,
    train_heads,
    warn_of_strengths,
)
from hansfree.corrections.training.model_loop import Checkpoint, Pretraining, pretrain
from hansfree.corrections.training.solver import check_float64, check_head_size, minimise, solutions

__all__ = [
    "Checkpoint",
    "FineTuning",
    "FunctionalHead",
    "HeadBatch",
    "Heads",
    "Optimizer",
    "Pretraining",
    "SolverSupport",
    "TrainedHead",
    "Watch",
    "balanced_weights",
    "check_float64",
    "check_head_size",
    "group_strengths",
    "minimise",
    "pretrain",
    "push",
    "solutions",
    "train_heads",
    "warn_of_strengths",
]
