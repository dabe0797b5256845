"""How much of a heatmap lies on the artifact."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hansfree.errors import DataError


def artifact_relevance(heatmaps: Tensor | np.ndarray, masks: Tensor | np.ndarray) -> np.ndarray:
    """Return per image the share of absolute relevance that lies on the artifact (the paper's R_bias), in [0, 1].

    NaN where an image has no relevance at all, or where the heatmap is not finite: a share of nothing is not zero.
    """
    relevance = np.abs(np.asarray(torch.as_tensor(heatmaps).detach().cpu(), dtype=np.float64))
    mask = np.asarray(torch.as_tensor(masks).cpu(), dtype=bool)
    if relevance.ndim != 3 or relevance.shape != mask.shape:
        raise DataError(
            f"Heatmaps and masks must both be (n, height, width); they are {relevance.shape} and {mask.shape}."
        )
    total = relevance.sum(axis=(1, 2))
    on_artifact = np.where(mask, relevance, 0.0).sum(axis=(1, 2))
    defined = np.isfinite(total) & (total > 0)
    share = np.full(len(total), np.nan)
    share[defined] = on_artifact[defined] / total[defined]
    return share
