"""The cache: a layer's output for every image, and what the head needs of it."""

from hansfree.activations.cache import (
    Activations,
    CachePass,
    Pooling,
    Precision,
    collect,
    collect_activations,
    cut_again,
    find_pairs,
    join,
    pick,
    plan_pass,
    pool_again,
)
from hansfree.activations.features import Features, Live, compute_features

__all__ = [
    "Activations",
    "CachePass",
    "Features",
    "Live",
    "Pooling",
    "Precision",
    "collect",
    "collect_activations",
    "compute_features",
    "cut_again",
    "find_pairs",
    "join",
    "pick",
    "plan_pass",
    "pool_again",
]
