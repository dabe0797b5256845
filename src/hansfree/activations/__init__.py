"""The cache: a layer's output for every image, and what the head needs of it."""

from hansfree.activations.cache import Activations, Precision, collect_activations, cut_again
from hansfree.activations.features import Features, Live, compute_features
from hansfree.activations.positions import Pooling

__all__ = [
    "Activations",
    "Features",
    "Live",
    "Pooling",
    "Precision",
    "collect_activations",
    "compute_features",
    "cut_again",
]
