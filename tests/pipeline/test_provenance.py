"""Hashes: the same contents have the same, others have others, and what is not there has none."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import torch

from hansfree._internal.hashing import hash_weights
from hansfree.corrections.training import FineTuning
from hansfree.data.artifacts import Timestamp
from hansfree.data.biased import insert_bias
from hansfree.data.lesions import SyntheticLesions
from hansfree.models import build_model
from hansfree.pipeline.outcome import hash_contents
from hansfree.pipeline.workspace import Setting


def setting(*, seed: int = 0) -> Setting:
    parts = [SyntheticLesions(n, size=32, start=start) for n, start in ((40, 0), (104, 40), (40, 144))]
    data = insert_bias(parts, Timestamp(), biased_class=0, share=0.5, seed=seed)
    return Setting(
        name="x", data=data, model=build_model("demo", classes=4), layer="features.10", tuning=FineTuning(epochs=1)
    )


def test_hashes_tell_images_model_and_weights_apart(tmp_path: Path) -> None:
    weights = tmp_path / "corrected" / "rr-clarc.safetensors"
    weights.parent.mkdir()
    weights.write_bytes(b"x" * 5_000_000)
    found = hash_contents(setting(), tmp_path, ["rr-clarc", "rrr"])
    assert found == hash_contents(setting(), tmp_path, ["rr-clarc", "rrr"])
    assert found["weights, rr-clarc"] == hashlib.sha256(b"x" * 5_000_000).hexdigest()
    assert "weights, rrr" not in found, "it has no model"
    assert found["original weights"] == hash_weights(setting().model.state_dict()), "as an export names them"
    other = hash_contents(setting(seed=1), tmp_path, [])
    assert other["images, train"] != found["images, train"]
    assert other["images, test clean"] == found["images, test clean"]
    changed = setting()
    with torch.no_grad():
        next(changed.model.parameters()).add_(1)
    assert hash_contents(replace(changed), tmp_path, [])["original weights"] != found["original weights"]
