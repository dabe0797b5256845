"""Where in the image a model, or a CAV, looks: LRP heatmaps through zennit, and what is read off them."""

from hansfree.heatmaps.localisation import compute_cav_heatmaps
from hansfree.heatmaps.lrp import compute_heatmaps
from hansfree.heatmaps.masks import masks_from_heatmaps
from hansfree.heatmaps.shares import artifact_relevance

__all__ = ["artifact_relevance", "compute_cav_heatmaps", "compute_heatmaps", "masks_from_heatmaps"]
