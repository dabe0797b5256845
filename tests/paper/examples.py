"""Rows of made-up runs, small and plausible."""

from __future__ import annotations

from typing import Any

from hansfree.evaluation.results import Row
from hansfree_paper.aggregate import SubjectKey

VGG = SubjectKey("synthetic", "timestamp", "vgg16")
RESNET = SubjectKey("synthetic", "timestamp", "resnet18")
BRIGHT = SubjectKey("synthetic", "brightness", "vgg16")

OPTIONS: dict[str, dict[str, Any]] = {
    "rrr": {"target": "sum", "norm": "squared"},
    "p-clarc": {"cav": "signal"},
    "a-clarc": {"cav": "signal"},
    "rr-clarc": {"cav": "signal", "target": "expected", "norm": "squared"},
}


def row(method: str, metric: str, value: float, **about: Any) -> Row:
    """Return a chosen score on test images; ``about`` overrides any column."""
    columns: dict[str, Any] = {
        "experiment": "made-up",
        "chosen": 1,
        "seed": 0,
        "split": "test",
        "stderr": 0.01,
        "n": 100,
    }
    return Row(method=method, metric=metric, value=value, **(columns | OPTIONS.get(method, {}) | about))


def scored(method: str, **about: Any) -> list[Row]:
    """Return rows of a method, one per metric given by name; lists are values of the seeds 0, 1, ..."""
    rows = []
    for metric, values in about.items():
        for seed, value in enumerate(values if isinstance(values, list) else [values]):
            rows.append(row(method, metric, value, seed=seed))
    return rows


def cav_row(name: str, metric: str, value: float) -> Row:
    return row(f"cav:{name}", metric, value, cav=name, chosen=None)


def path(method: str, strengths: dict[float, tuple[float, float]], *, chosen: float, **about: Any) -> list[Row]:
    """Return (clean, biased) accuracies along the strengths."""
    return [
        row(method, f"accuracy_{part}", value, strength=strength, chosen=int(strength == chosen), **about)
        for strength, pair in strengths.items()
        for part, value in zip(("clean", "biased"), pair)
    ]
