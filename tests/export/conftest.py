"""A run folder as `hansfree demo` leaves it, with a tiny model and numbers that are made up."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import save_file
from torch import nn

from hansfree._internal.files import write_json
from hansfree.corrections import BalancedRule
from hansfree.data.examples import IMAGENET
from hansfree.evaluation.results import rows_of, write_table
from hansfree.metrics import Score
from hansfree.models import build_model
from hansfree.reasons import Reason, ReasonCode, Verdict, VerdictLevel
from tests.export.examples import corrected

SIZE = 32
NAMES = ["benign", "odd | name", "malignant"]
SCORES = {  # balanced accuracy clean, biased, flip rate
    "original": (0.91, 0.48, 0.56),
    "rr-clarc": (0.9, 0.87, 0.06),
    "p-clarc": (0.905, 0.82, 0.12),
}
MakeRun = Callable[..., Path]


def original_model() -> nn.Module:
    return build_model("demo", classes=len(NAMES), seed=4).eval()


def corrected_models() -> dict[str, nn.Module]:
    tuned = copy.deepcopy(original_model())
    with torch.no_grad():
        tuned.get_parameter("classifier.weight").mul_(0.5)
    return {"rr-clarc": tuned, "p-clarc": corrected(tuned, "features.10", channels=128)}


def save(path: Path, model: nn.Module) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, path)


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Return what makes a run folder; ``meta``, ``unknown`` and ``level`` (of RR-ClArC) go into its results.json."""

    def make(
        *,
        shown: bool = True,
        unknown: Any = (),
        scores: Any = SCORES,
        level: VerdictLevel | None = VerdictLevel.CORRECTED,
        **meta: Any,
    ) -> Path:
        run = tmp_path / "run"
        run.mkdir()
        (run / "config.yaml").write_text(yaml.safe_dump({"hansfree": "0.1.0", "model": "demo", "size": SIZE}))
        save(run / "model.safetensors", original_model())
        images = np.random.default_rng(0).integers(0, 256, (4, SIZE, SIZE, 3), dtype=np.uint8)
        (run / "stages").mkdir()
        for name, model in corrected_models().items():
            save(run / "corrected" / f"{name}.safetensors", model)
            with torch.no_grad():
                np.savez(run / "stages" / f"{name}.npz", shown_logits=model(IMAGENET(images)).numpy())
        if shown:
            masks = np.zeros((4, SIZE, SIZE), bool)
            np.savez(run / "heatmaps.npz", images=images, masks=masks, direction=masks.astype(np.float32))
        rows = []
        for method, (clean, biased, flips) in scores.items():
            about = {"experiment": "demo", "method": method, "split": "test", "chosen": 1, "seed": 0}
            about["cav"] = None if method == "original" else "signal"
            found = [
                Score("balanced_accuracy_clean", clean, 0.012, 400),
                Score("balanced_accuracy_biased", biased, 0.015, 400),
                Score("flip_rate", flips, 0.02, 400),
            ]
            rows += rows_of(found, **about)
            if method != "original":
                rows += rows_of([Score("flip_rate", 0.999, 0.1, 400)], **{**about, "seed": 1})  # a repeat
                rows += rows_of([Score("flip_rate", 0.111, 0.1, 400)], **{**about, "chosen": 0})
        write_table(run / "results.csv", rows)
        about_run = {
            "artifact": "timestamp",
            "biased_class": 0,
            "class_names": NAMES,
            "model": "demo",
            "layer": "features.10",
            "seed": 0,
            "size": SIZE,
            "chance_level": 1 / 3,
            "majority_rate": 0.4,
            "n_train": 4000,
            "n_test_biased": 400,
            "command": "hansfree demo --quick",
            "versions": {"python": "3.11.7", "hansfree": "0.1.0"},
        }
        reason = Reason(ReasonCode.BEST_ON_VALIDATION, {"admissible": 14, "rejected": 0})
        chosen = {"rule": asdict(BalancedRule().summary()), "reason": asdict(reason)}
        chosen |= {"strength": 20.0, "diverged": [], "admissible": True}
        write_json(
            run / "results.json",
            {
                "meta": {**about_run, **meta},
                "selection": {"rr-clarc": chosen, "p-clarc": {**chosen, "strength": None}},
                "verdicts": {} if level is None else {"rr-clarc": Verdict(level).to_json()},
                "unknown": list(unknown),
            },
        )
        return run

    return make
