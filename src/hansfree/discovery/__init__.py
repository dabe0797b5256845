"""Which artifact, and which images: suspects among unlabelled images, and the labelling page."""

from hansfree.discovery.opening import (
    By,
    SuspectsFound,
    UnlabelledImages,
    collect_pooled,
    label_directory,
    open_unlabelled_images,
    search_suspects,
)
from hansfree.discovery.properties import Measurements, measure_images
from hansfree.discovery.suspects import Suspects, find_suspects, relevance_features

__all__ = [
    "By",
    "Measurements",
    "Suspects",
    "SuspectsFound",
    "UnlabelledImages",
    "collect_pooled",
    "find_suspects",
    "label_directory",
    "measure_images",
    "open_unlabelled_images",
    "relevance_features",
    "search_suspects",
]
