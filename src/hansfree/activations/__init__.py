"""The cache: a layer's output for every image, and what the head needs of it."""

from hansfree.activations.cache import Activations, collect, collect_activations, cut_again
from hansfree.activations.features import Features, Live, compute_features
from hansfree.activations.pairs import find_pairs, join
from hansfree.activations.passes import CachePass, Precision, plan_pass
from hansfree.activations.picking import pick, pool_again
from hansfree.activations.positions import Pooling

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
