"""For those who do not know the artifact yet: clusters and properties of images that fit oddly."""

from hansfree.suspects.findings import Cluster, Embedding, Property, Suspects
from hansfree.suspects.measures import Measurements, measure_images
from hansfree.suspects.relevance import relevance_features
from hansfree.suspects.seeking import find_suspects

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
