"""Training: heads on the cache, many strengths at once; and whole models for the demo."""

from hansfree.training.heads import FineTuning, Head, HeadBatch, Heads, TrainedHead, Watch, WeightedHead, train_heads
from hansfree.training.pretraining import Pretraining, pretrain

__all__ = [
    "FineTuning",
    "Head",
    "HeadBatch",
    "Heads",
    "Pretraining",
    "TrainedHead",
    "Watch",
    "WeightedHead",
    "pretrain",
    "train_heads",
]
