"""Single images of a run that was never made: small pictures, and answers that are made up and plausible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.report.conftest import CHOSEN, SELECTION

N = 24  # of which the last four are somebody's extremes, outside the sample


def case_arrays(*, is_paired: bool = True, n: int = N, side: int = 16) -> dict[str, Any]:
    """Return what cases.npz holds: with the artifact, models call images "melanoma" the more, the more they flip."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 4
    arrays: dict[str, Any] = {"labels": labels, "is_sampled": np.arange(n) < n - 4}
    for condition in ("clean", "biased") if is_paired else ("biased",):
        arrays[f"pictures_{condition}"] = rng.integers(0, 256, (n, side, side, 3), dtype=np.uint8)
        for method in ("original", *SELECTION):
            pull = CHOSEN[method][2] if condition == "biased" else 0.0
            right = (1 - pull) * (0.4 + 0.5 * rng.random(n))
            # apart from each other, or a pointer could not tell them
            own = np.where(labels == 1, right, pull + (1 - pull) * np.linspace(0.02, 0.3, n))
            arrays[f"true_class_{condition}/{method}"] = right.astype(np.float32)
            arrays[f"biased_class_{condition}/{method}"] = own.astype(np.float32)
            arrays[f"predicted_{condition}/{method}"] = np.where(own > 0.5, 1, labels)
    for method in SELECTION:
        change = arrays[f"true_class_biased/{method}"] - arrays["true_class_biased/original"]
        arrays[f"counts/{method}"] = np.array([800, (change >= 0.01).sum(), (change <= -0.01).sum()])
    return arrays


def write_cases(path: Path, **options: Any) -> None:
    np.savez(path, **case_arrays(**options))
