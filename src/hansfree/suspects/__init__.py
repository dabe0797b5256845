"""For those who do not know the artifact yet: clusters and properties of images that fit oddly."""

from hansfree.suspects.clustering import Cluster, Embedding, Measurements, Property, Suspects, measure_images
from hansfree.suspects.suspects import find_suspects, relevance_features

__all__ = [
    "Cluster",
    "Embedding",
    "Measurements",
    "Property",
    "Suspects",
    "find_suspects",
    "measure_images",
    "relevance_features",
]
