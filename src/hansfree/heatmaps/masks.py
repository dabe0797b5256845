"""Binary masks from heatmaps, for RRR where nobody marked the artifact."""

from __future__ import annotations

import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor

from hansfree.errors import DataError, OptionError


def masks_from_heatmaps(heatmaps: Tensor | np.ndarray, *, blur: float = 0.03) -> np.ndarray:
    """Return where each heatmap is large: bool (n, height, width), never empty.

    Positive relevance, smoothed, and cut by Otsu's threshold of each image (the paper says only "a threshold"). Otsu's
    adapts to how large the artifact is and to the heatmap's unit, which a fixed share of the maximum does not. Without
    any positive relevance, or with the same everywhere, nothing says where the artifact is: then the mask is the full
    image, as for unlocalised artifacts.

    Such masks are for training only: scored by them, a method would be judged by the CAV that taught it.

    Args:
        heatmaps: (n, height, width), as from ``compute_cav_heatmaps``.
        blur: standard deviation of the smoothing, as a part of the shorter side; LRP is grainy, artifacts are not. 0
            for none.
    """
    relevance = np.asarray(torch.as_tensor(heatmaps).detach().cpu(), dtype=np.float64)
    if relevance.ndim != 3 or not all(relevance.shape[1:]):
        raise DataError(f"Masks are made of heatmaps (n, height, width), not of shape {relevance.shape}.")
    if not 0 <= blur <= 0.5:
        raise OptionError(f"blur is a part of the image's side, from 0 to 0.5, not {blur!r}.")
    if not np.isfinite(relevance).all():
        bad = np.flatnonzero(~np.isfinite(relevance).all(axis=(1, 2)))
        raise DataError(f"{len(bad)} of {len(relevance)} heatmaps are not finite; the first is number {bad[0]}.")
    positive = np.maximum(relevance, 0)
    sigma = blur * min(relevance.shape[1:])
    smooth = gaussian_filter(positive, sigma=(0, sigma, sigma), mode="nearest")
    # The filter's rounding must not make two values out of a constant map.
    smooth[positive.max(axis=(1, 2)) == positive.min(axis=(1, 2))] = 0
    masks: np.ndarray = np.stack([one > _otsu(one) for one in smooth]) if len(smooth) else np.zeros(smooth.shape, bool)
    masks[~masks.any(axis=(1, 2))] = True
    return masks


def _otsu(values: np.ndarray) -> float:
    """Return the value that best cuts all values in two: above it and not above it differ the most (Otsu, 1979)."""
    ordered = np.sort(values, axis=None)
    below = np.arange(1, len(ordered))
    above = len(ordered) - below
    sums = np.cumsum(ordered)
    gap = (sums[-1] - sums[:-1]) / above - sums[:-1] / below
    between = below * above * gap**2
    # Equal values belong to one side: a cut among them is no cut.
    between[ordered[1:] == ordered[:-1]] = -1
    if not len(between) or between.max() <= 0:
        return float(ordered[-1])
    return float(ordered[np.argmax(between)])
