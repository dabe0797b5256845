"""A small run folder as `hansfree demo` leaves it, with numbers that are made up and plausible."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hansfree.results import COLUMNS

N_TEST = 800
# method: (balanced accuracy clean, biased, flip rate, tcav) of the chosen strength on the test split
CHOSEN = {
    "original": (0.921, 0.480, 0.560, 1.000),
    "vanilla": (0.925, 0.541, 0.470, 0.990),
    "rrr": (0.918, 0.702, 0.281, 0.900),
    "p-clarc": (0.880, 0.822, 0.120, 0.620),
    "a-clarc": (0.909, 0.862, 0.070, 0.310),
    "rr-clarc": (0.916, 0.871, 0.060, 0.470),
    "clean-trained": (0.930, 0.924, 0.015, 0.500),
}
STRENGTHS = {"rrr": (0.1, 1.0, 10.0, 100.0), "rr-clarc": tuple(10.0**k for k in range(-3, 6))}
TAKEN = {"rrr": 10.0, "rr-clarc": 10.0}
CAVS = {
    "signal": (0.71, 0.96),
    "svm": (0.25, 0.34),
    "ridge": (0.31, 0.42),
    "lasso": (0.18, 0.22),
    "logistic": (0.27, 0.37),
}

Score = dict[str, Any]
MakeRun = Callable[..., Path]


def score(method: str, metric: str, value: float, *, n: int | str = N_TEST, **columns: Any) -> Score:
    """Return one line of results.csv; what is not said is empty."""
    stderr = abs(value * (1 - value) / N_TEST) ** 0.5
    line = dict.fromkeys(COLUMNS, "") | {"experiment": "timestamp", "chosen": 1, "seed": 0, "split": "test"}
    return line | {"method": method, "metric": metric, "value": value, "stderr": stderr, "n": n} | columns


def chosen_scores(method: str) -> list[Score]:
    clean, biased, flips, tcav = CHOSEN[method]
    columns = {"strength": TAKEN.get(method, ""), "cav": "signal" if method.endswith("clarc") else ""}
    values = {
        "accuracy_clean": clean + 0.01,
        "accuracy_biased": biased + 0.02,
        "balanced_accuracy_clean": clean,
        "balanced_accuracy_biased": biased,
        "auroc_clean": 0.5 + clean / 2,
        "auroc_biased": 0.5 + biased / 2,
        "flip_rate": flips,
        "probability_change": flips * 0.9 - 0.02,
        "tcav": tcav,
        "tcav_positions": 0.5 + (tcav - 0.5) * 0.7,
        "tcav_zero_share": 0.02,
        "tcav_sensitivity": 0.0123 * flips,
        "artifact_relevance": 0.6 * flips + 0.02,
    }
    lines = [score(method, metric, value, **columns) for metric, value in values.items()]
    worst = score(method, "accuracy_worst_group", biased - 0.2, n=180, group="class 1 with artifact", **columns)
    return [*lines[:6], worst, *lines[6:]]


def path_scores() -> list[Score]:
    lines = []
    for method, strengths in STRENGTHS.items():
        for place, strength in enumerate(strengths):
            columns = {"strength": strength, "chosen": int(strength == TAKEN[method]), "split": "val", "n": 400}
            columns["cav"] = "signal" if method.endswith("clarc") else ""
            won = min(place / 4, 1)
            cost = 0.04 * max(place - 5, 0) ** 2
            broken = method == "rr-clarc" and strength == 1e5
            for metric, value in (("clean", 0.92 - cost), ("biased", 0.5 + 0.38 * won - cost)):
                lines.append(score(method, f"balanced_accuracy_{metric}", float("nan") if broken else value, **columns))
    for method in ("original", "vanilla", "p-clarc", "a-clarc", "clean-trained"):
        for metric, value in zip(("clean", "biased"), CHOSEN[method]):
            cav = "signal" if method.endswith("clarc") else ""
            lines.append(score(method, f"balanced_accuracy_{metric}", value - 0.01, split="val", n=400, cav=cav))
    return lines


def cav_scores() -> list[Score]:
    return [
        score(f"cav:{name}", metric, value, cav=name)
        for name, values in CAVS.items()
        for metric, value in zip(("alignment_sample", "alignment_mean"), values)
    ]


def make_heatmaps(path: Path, *, n: int = 4, side: int = 64) -> None:
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:side, :side]
    images = np.empty((n, side, side, 3), np.uint8)
    masks = np.zeros((n, side, side), bool)
    relevance = {f"relevance/{method}": np.zeros((n, side, side), np.float32) for method in CHOSEN}
    for k in range(n):
        lesion = np.exp(-(((x - 32 - 3 * k) / 14) ** 2 + ((y - 28) / (10 + k)) ** 2))
        skin = np.array([226, 184, 160])[None, None] - lesion[..., None] * np.array([120, 130, 120])
        images[k] = np.clip(skin + rng.normal(0, 6, (side, side, 3)), 0, 255)
        masks[k, 50:58, 6 + 4 * k : 34 + 4 * k] = True
        images[k][masks[k] & ((x // 2) % 3 > 0)] = 250
        for method, (_, _, flips, _) in CHOSEN.items():
            noise = rng.normal(0, 0.05, (side, side))
            relevance[f"relevance/{method}"][k] = (
                lesion * 0.6 + noise * (lesion + 0.1) + flips * masks[k] * rng.random((side, side)) * 2
            )
    np.savez(path, images=images, masks=masks, labels=np.arange(n) % 4, **relevance)


META = {
    "title": "Unlearning a timestamp",
    "artifact": "timestamp",
    "biased_class": 1,
    "class_names": ["naevus", "melanoma", "keratosis", "basal cell"],
    "model": "demo",
    "layer": "features.9",
    "n_train": 4000,
    "n_val": 400,
    "n_test": N_TEST,
    "majority_rate": 0.41,
    "seed": 0,
    "size": 64,
    "versions": {"hansfree": "0.1.0", "torch": "2.15.0", "numpy": "2.4.6"},
    "seconds": {"train": 31.2, "activations": 4.7, "cavs": 12.25, "corrections": 40.0, "evaluation": 20.1},
    "command": "hansfree demo --artifact timestamp --seed 0",
    "notes": ["Groups under 25 images are not scored."],
}
SELECTION = {
    "rrr": {
        "rule": "best balanced biased accuracy, clean drop ≤ 2 points",
        "strength": 10.0,
        "reason": "best on val: 70.2 %",
    },
    "rr-clarc": {
        "rule": "best balanced biased accuracy, clean drop ≤ 2 points",
        "strength": 10.0,
        "reason": "best on val: 88.0 %",
        "diverged": [1e5],
    },
}


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Return a function that writes a run folder; ``change`` may edit its lines, ``meta`` and ``selection`` replace."""

    def make(
        *,
        change: Callable[[list[Score]], list[Score]] = lambda lines: lines,
        meta: dict[str, Any] = META,
        selection: dict[str, Any] = SELECTION,
        heatmaps: bool = False,
    ) -> Path:
        run = tmp_path / "run"
        run.mkdir()
        lines = change([*(line for method in CHOSEN for line in chosen_scores(method)), *path_scores(), *cav_scores()])
        with (run / "results.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(lines)
        summary = {"meta": meta, "selection": selection, "scores": lines}
        (run / "results.json").write_text(json.dumps(summary), encoding="utf-8")
        if heatmaps:
            make_heatmaps(run / "heatmaps.npz")
        return run

    return make
