"""Where in the image a model, or a CAV, looks: heatmaps by LRP or gradient x input, and what is read off them."""

from hansfree.heatmaps.heatmaps import Explanation, artifact_relevance, compute_heatmaps, explanation_of
from hansfree.heatmaps.localisation import compute_cav_heatmaps, kept_masks, localise_artifact, masks_from_heatmaps

__all__ = [
    "Explanation",
    "artifact_relevance",
    "compute_cav_heatmaps",
    "compute_heatmaps",
    "explanation_of",
    "kept_masks",
    "localise_artifact",
    "masks_from_heatmaps",
]
