"""Result files: cases for the report, and hashes of images and weights."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hansfree._internal.hashing import hash_weights
from hansfree.corrections.training import FineTuning
from hansfree.data.biased import BiasedData
from hansfree.metrics import Evidence, predict_classes
from hansfree.models import build_model
from hansfree.pipeline.outcome import collect_cases, hash_contents, probabilities_of
from hansfree.pipeline.workspace import Setting, keep_in_memory
from tests.pipeline.worlds import stamped

N = 230


@pytest.fixture(scope="module")
def data() -> BiasedData:
    return keep_in_memory(stamped(8, 8, N, size=80, classes=4))


def evidence_of(data: BiasedData, seed: int, *, labels_biased: Any = None) -> Evidence:
    rng = np.random.default_rng(seed)
    clean, biased = rng.normal(size=(2, N, 4))
    labels = data.test_clean.labels
    return Evidence(
        labels=labels, biased_class=0, logits_clean=clean, logits_biased=biased, labels_biased=labels_biased
    )


def kept_of(evidence: Evidence) -> dict[str, np.ndarray]:
    answers = {f"predicted_{each}": predict_classes(evidence.logits(each)) for each in ("clean", "biased")}
    return probabilities_of(evidence) | answers


def test_probabilities_are_those_of_softmax(data: BiasedData) -> None:
    evidence = evidence_of(data, 0)
    found = probabilities_of(evidence)
    for condition in ("clean", "biased"):
        shares = np.exp(evidence.logits(condition))
        shares /= shares.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(found[f"biased_class_{condition}"], shares[:, 0], rtol=1e-6)
        own = [shares[row, label] for row, label in enumerate(evidence.labels)]
        np.testing.assert_allclose(found[f"true_class_{condition}"], own, rtol=1e-6)


def test_the_sample_is_fixed_and_the_extremes_are_there(data: BiasedData) -> None:
    kept = {name: kept_of(evidence_of(data, seed)) for seed, name in enumerate(("original", "rrr", "vanilla"))}
    cases = collect_cases(data, kept, seed=3)
    again, other = (collect_cases(data, kept, seed=seed) for seed in (3, 4))
    assert cases["is_sampled"].sum() == 200
    np.testing.assert_array_equal(cases["true_class_biased/rrr"], again["true_class_biased/rrr"])
    assert len(cases["labels"]) != len(other["labels"]) or (cases["labels"] != other["labels"]).any()
    for method in ("rrr", "vanilla"):
        change = kept[method]["true_class_biased"] - kept["original"]["true_class_biased"]
        seen = cases[f"true_class_biased/{method}"] - cases["true_class_biased/original"]
        np.testing.assert_allclose(np.sort(seen)[:6], np.sort(change)[:6])
        np.testing.assert_allclose(np.sort(seen)[-6:], np.sort(change)[-6:])
        assert cases[f"counts/{method}"].tolist() == [N, (change >= 0.01).sum(), (change <= -0.01).sum()]


def test_what_is_not_known_is_left_out(data: BiasedData) -> None:
    evidence = evidence_of(data, 0)
    broken = replace(evidence, logits_biased=np.full((N, 4), np.nan))
    kept = {"original": kept_of(evidence), "rrr": kept_of(broken)}
    assert "rrr" not in {key.partition("/")[2] for key in collect_cases(data, kept, seed=0)}
    assert collect_cases(data, {"original": kept_of(broken)}, seed=0) == {}


def setting(*, seed: int = 0) -> Setting:
    data = stamped(40, 104, 40, classes=4, seed=seed)
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
