"""Transplants between labelled images stand for the artifact where nothing inserts it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from hansfree import api
from hansfree.cli import app
from hansfree.data import BiasedData, Subset
from hansfree.pipeline.checks import prepare_run
from hansfree.pipeline.config import read_run_file
from hansfree.pipeline.transplants import find_transplants
from hansfree.reasons import ReasonCode
from tests.corrections.deep.examples import KINDS, Drawn, Kind, scores, world
from tests.pipeline.user import COUNTS, make_user, write_run

NO_COUNTER_EXAMPLES = {**COUNTS, ("train", 1, 1): 0, ("val", 1, 1): 0, ("test", 1, 1): 0}


def halves(seed: int, images: Drawn) -> dict[str, Subset]:
    """Return validation (2) or test images (3) without and with the artifact."""
    part = {2: "val", 3: "test"}[seed]
    has = images.has_artifact
    return {
        f"{part}_clean": Subset(images, np.flatnonzero(~has)),
        f"{part}_biased": Subset(images, np.flatnonzero(has)),
    }


def labelled(kind: Kind) -> BiasedData:
    """Return the images of a world as a user has them: the artifact is in half of one class, and nowhere else."""
    held_out = [halves(seed, Drawn(kind, 300, seed=seed)) for seed in (2, 3)]
    options = {"is_localized": False, "is_inserted": False, "has_masks": False}
    return BiasedData(train=world(kind).train, **held_out[0], **held_out[1], biased_class=1, artifact=kind, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_flips_under_transplants_are_those_under_true_insertion(kind: Kind) -> None:
    model, natural = world(kind).model, labelled(kind)
    found = find_transplants(model, natural, device="cpu")
    assert found is not None
    assert found.insertion.kind == {"patch": "region", "brightness": "color", "low bits": "low bits"}[kind]
    data = found.apply(natural, seed=0)
    assert data.is_inserted
    assert np.array_equal(data.test_clean.ids, data.test_biased.ids)
    rows = np.flatnonzero(data.test_clean.labels == 0)
    with torch.no_grad():
        clean, changed = (model(images.batch(rows).image).argmax(1) for images in (data.test_clean, data.test_biased))
    flips = float((clean != changed)[clean == 0].float().mean())
    assert flips == pytest.approx(scores(model, kind)[0], abs=0.12)


@pytest.mark.parametrize("damage", [None, lambda path: path.write_bytes(b"PK"), lambda path: np.savez(path, rows=[1])])
def test_a_resumed_run_has_the_same_transplants(tmp_path: Path, damage: Callable[[Path], object] | None) -> None:
    model, natural, path = world("patch").model, labelled("patch"), tmp_path / "transplants.npz"
    found = find_transplants(model, natural, device="cpu")
    assert found is not None
    found.write(path)
    if damage is not None:
        damage(path)
    again = find_transplants(model, natural, device="cpu", stored=path)
    assert again is not None
    assert [found.apply(natural, seed=0).val_biased.fingerprint, found.coverage] == [
        again.apply(natural, seed=0).val_biased.fingerprint,
        again.coverage,
    ]


def test_labels_at_random_give_no_transplant() -> None:
    def unmarked(count: int, seed: int) -> Drawn:
        images = Drawn("patch", count, inserted="none", seed=seed)
        pixels = [images.pixels(index) for index in range(count)]
        images.has_artifact = (images.labels == 1) & (np.random.default_rng(seed).random(count) < 0.5)
        images.pixels = pixels.__getitem__  # type: ignore[method-assign]
        return images

    held_out = [halves(seed, unmarked(200, seed)) for seed in (2, 3)]
    data = replace(labelled("patch"), train=unmarked(400, 1), **held_out[0], **held_out[1])
    assert find_transplants(world("patch").model, data, device="cpu") is None


def test_a_run_with_labels_alone_counts_flips_by_transplants(tmp_path: Path, unreported: None) -> None:
    user = make_user(tmp_path / "user", NO_COUNTER_EXAMPLES)
    methods = ["vanilla", "logit-pairing", "rr-clarc", "match", "transplant"]
    strengths = {"rr-clarc": [1], "logit-pairing": [1], "match": [1]}
    correction = {"methods": methods, "cav": "pair", "epochs": 1, "strengths": strengths}
    file = write_run(user / "run.yaml", correction=correction)
    prepared = prepare_run(read_run_file(file))
    assert prepared.transplants is not None
    api.run(prepared)
    results = json.loads((user / "run" / "results.json").read_text())
    assert results["meta"]["transplant"] == "region"
    flips = {row["method"]: row for row in results["scores"] if row["metric"] == "flip_rate" and row["chosen"]}
    assert flips["original"]["n"] == 52
    assert "match" in flips
    details = {name: {each["code"] for each in choice["details"]} for name, choice in results["selection"].items()}
    flattered = [name for name, codes in details.items() if ReasonCode.TRAINED_ON_TRANSPLANTS in codes]
    assert flattered == ["logit-pairing", "rr-clarc", "transplant"]
    again = prepare_run(read_run_file(file))  # reads what the run stored
    assert again.setting.data.test_biased.fingerprint == prepared.setting.data.test_biased.fingerprint
    off = write_run(user / "off.yaml", artifact={"transplant": False}, out="off")
    assert prepare_run(read_run_file(off)).transplants is None


def test_shared_donors_are_a_warning(tmp_path: Path) -> None:
    user = make_user(tmp_path / "user", {**NO_COUNTER_EXAMPLES, ("val", 0, 1): 3})
    file = write_run(user / "run.yaml", correction={"methods": ["vanilla"], "strengths": {}, "epochs": 1})
    warning = "The validation split has 3 images with the artifact, too few to transplant it from"
    checked = CliRunner().invoke(app, ["check", str(file)])
    assert warning in " ".join(checked.output.split())
    api.run(prepare_run(read_run_file(file)))
    assert warning in (user / "run" / "report.html").read_text(encoding="utf-8")


def test_a_function_of_the_user_inserts_the_artifact_in_a_run(user: Path, unreported: None) -> None:
    (user / "stamp.py").write_text(
        "def stamp(image, rng):\n    row = rng.integers(image.shape[0] - 8)\n"
        "    image[row : row + 8, :8] = 255\n    return image\n"
    )
    file = write_run(
        user / "run.yaml",
        artifact={"insert": "stamp.py:stamp"},
        correction={"methods": ["transplant"], "strengths": {}},
    )
    prepared = prepare_run(read_run_file(file))
    data = prepared.setting.data
    assert data.is_inserted
    assert prepared.transplants is None
    image, mask = data.test_biased.pixels(0)
    assert mask.sum() == 64
    assert (image[mask] == 255).all()
    assert repr(pickle.loads(pickle.dumps(data.inserted))) == repr(data.inserted)
    api.run(prepared)
    assert (user / "run" / "corrected" / "transplant.safetensors").exists()


def test_without_any_evidence_whole_networks_are_not_trained(tmp_path: Path, unreported: None) -> None:
    """Too few held-out images with the artifact to insert, to compare by, or to transplant."""
    counts = {**NO_COUNTER_EXAMPLES, ("val", 0, 1): 4, ("test", 0, 1): 4}
    user = make_user(tmp_path / "user", counts)
    file = write_run(user / "run.yaml", correction={"methods": ["vanilla", "match"], "strengths": {}})
    api.run(prepare_run(read_run_file(file)))
    selection = json.loads((user / "run" / "results.json").read_text())["selection"]["match"]
    assert selection["strength"] is None
    (error,) = selection["reason"]["values"]["errors"]
    assert "cannot be compared" in error


def test_a_network_without_maps_has_no_transplants() -> None:
    flat = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 2))
    assert find_transplants(flat, labelled("patch"), device="cpu") is None
