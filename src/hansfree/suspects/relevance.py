"""Where in the image the model looks, as features: SpRAy's heatmaps on a coarse grid."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from hansfree.datasets.base import ExampleSet
from hansfree.errors import OptionError
from hansfree.heatmaps import compute_heatmaps, explanation_of
from hansfree.progress import Progress, silent


def relevance_features(
    model: nn.Module, images: ExampleSet, *, grid: int = 12, batch_size: int = 64, progress: Progress = silent
) -> npt.NDArray[np.float32]:
    """Return the relevance for each image's own class, summed over the cells of a grid: (n, grid * grid).

    Each heatmap is divided by its total size: what counts is where, not how much.
    """
    if grid < 2 or batch_size < 1:
        raise OptionError(f"grid is 2 or more and batch_size 1 or more, not {grid} and {batch_size}.")
    explanation = explanation_of(model, images.batch([0]).image)
    starts = range(0, len(images), batch_size)
    parts = []
    for start in progress(starts, total=len(starts), label=f"heatmaps by {explanation}"):
        rows = np.arange(start, min(start + batch_size, len(images)))
        batch = images.batch(rows)
        labels = torch.as_tensor(images.labels[rows])
        maps = compute_heatmaps(model, batch.image, labels, explanation=explanation, batch_size=batch_size)
        cells = functional.adaptive_avg_pool2d(maps[:, None].float(), grid).flatten(1)
        parts.append(cells / cells.abs().sum(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny))
    return torch.cat(parts).numpy()
