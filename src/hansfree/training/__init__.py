"""Training: heads on the cache, many strengths at once; and whole models, to be corrected."""

from hansfree.training.balance import even_weights
from hansfree.training.heads import Heads, WeightedHead, push
from hansfree.training.loop import HeadBatch, TrainedHead, Watch, group_strengths, train_heads, warn_of_strengths
from hansfree.training.minimum import check_double, minimise
from hansfree.training.pretraining import Pretraining, pretrain
from hansfree.training.recipes import recipe_for, tuning_for
from hansfree.training.solving import check_solvable
from hansfree.training.tuning import FineTuning, Optimizer

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
