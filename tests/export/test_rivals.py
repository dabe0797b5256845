"""What the paper's rivals leave in a model is exported too: LEACE folds as P-ClArC does, a gate stays a module."""

from __future__ import annotations

import copy
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from hansfree.corrections import Correction, Projection
from hansfree.corrections.training import FineTuning
from hansfree.export import export_model, load_corrected
from hansfree.models.surgery import insert_after
from tests.corrections.examples import CASES, TinyImages, collect, fit_cav
from tests.export.examples import CHANNELS, CLASSES, images, sequential
from tests.export.test_saving import PLAIN, same


def oblique(pooling: Any) -> Projection:
    """Return an erasure: scores are taken along other vectors than it shifts along."""
    rng = np.random.default_rng(0)
    directions, readout = rng.normal(size=(2, 2, CHANNELS))
    readout = np.linalg.solve(readout @ directions.T, readout)  # of each other's length, so that twice is once
    return Projection(directions, rng.normal(size=2), pooling=pooling, readout=readout)


def gated(pooling: Any = "max") -> Projection:
    rng = np.random.default_rng(1)
    directions = np.linalg.qr(rng.normal(size=(CHANNELS, 2)))[0].T
    return Projection(directions, np.zeros(2), pooling=pooling, gate=np.eye(2), threshold=np.zeros(2))


@pytest.mark.parametrize("kind", PLAIN)
def test_an_erasure_folds_into_plain_weights(kind: str, tmp_path: Path) -> None:
    original, layer = PLAIN[kind]
    model = insert_after(original, f"layers.{layer}", oblique("mean")).eval()
    done = export_model(model, tmp_path / "m.safetensors", original=original, example=images())
    assert (done.folding.kind, done.added) == (kind, ())
    fresh = copy.deepcopy(original)
    fresh.load_state_dict(load_file(done.weights), strict=True)
    same(fresh, model, images(seed=3))


def test_a_gate_stays_a_module_with_a_loader(tmp_path: Path) -> None:
    original = sequential(nn.Flatten(), nn.Linear(192, CHANNELS), nn.Linear(CHANNELS, CLASSES))
    model = insert_after(original, "layers.1", gated()).eval()
    done = export_model(model, tmp_path / "m.safetensors", original=original, example=images())
    assert done.folding.kind == "module"
    assert "acts only on some images" in done.folding.sentence
    assert {name.rpartition(".")[2] for name in done.added} == {"directions", "target", "gate", "threshold"}
    assert done.loader is not None
    loaded = runpy.run_path(str(done.loader))["load_corrected"](copy.deepcopy(original))
    same(loaded, model, images(seed=1))
    same(load_corrected(original, done.weights), model, images(seed=1))
    with torch.no_grad():
        assert not torch.allclose(model(images()), original(images()))


@pytest.mark.parametrize("method", ["p-clarc-one-sided", "r-clarc", "leace", "dfr"])
@pytest.mark.parametrize("name", ["mlp", "graph node"])
def test_every_rival_can_be_exported(name: str, method: str, tmp_path: Path) -> None:
    case, data = CASES[name], TinyImages(40)
    model = case.model()
    acts = collect(case, model, data)
    tuning = FineTuning(epochs=1)
    fixed = Correction.named(method).for_run(cav=fit_cav(acts), images=data, tuning=tuning).correct(model, acts)
    done = export_model(fixed, tmp_path / "m.safetensors", original=model, example=data.images[:8], method=method)
    assert done.folding.kind == ("plain" if method == "dfr" else "module")
    same(load_corrected(case.model(), done.weights), fixed, data.images[8:])
