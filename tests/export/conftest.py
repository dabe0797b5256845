"""A run folder as `hansfree demo` leaves it, with a tiny model and the made-up numbers of the report's tests."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import save_file
from torch import nn

from hansfree.data.examples import IMAGENET
from hansfree.evaluation.results import Row
from hansfree.models import build_model
from tests.export.examples import corrected
from tests.report.conftest import META, Change, MakeRun, choice
from tests.report.conftest import make_run as make_results  # noqa: F401  # a fixture

SIZE = 32
NAMES = ["benign", "odd | name", "malignant"]
SELECTION = {"rr-clarc": choice(10.0), "p-clarc": choice(None)}


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
def make_run(make_results: MakeRun) -> MakeRun:  # noqa: F811
    """Return what makes a run folder; ``change`` may edit its rows, and other options go into its results.json."""

    def make(*, shown: bool = True, change: Change = list, unknown: Any = (), **meta: Any) -> Path:
        def known(rows: list[Row]) -> list[Row]:
            return change([row for row in rows if row.method in ("original", *SELECTION)])

        about = {"class_names": NAMES, "biased_class": 0, "layer": "features.10", "size": SIZE, **meta}
        run = make_results(change=known, selection=SELECTION, meta=META | about, unknown=unknown)
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
        return run

    return make
