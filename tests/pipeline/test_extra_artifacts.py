"""Further artifacts of a run file: scored as if by hand, kept stage by stage, added later, and on the page."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from hansfree import api
from hansfree.data.artifacts import Artifact
from hansfree.export import load_corrected
from hansfree.pipeline.checks import PreparedRun
from tests.pipeline.user import ENOUGH, make_user, prepare, read_results, run_unreported

METHODS = ("original", "vanilla", "p-clarc", "rr-clarc")
MODELS = ("original", "vanilla", "p-clarc", "rr-clarc-0.1")  # in the names of stages, with the strength that was taken
OWN = {"insert": "patch", "file": "sticker.png", "place": "top-left"}


def stages(user: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (user / "run" / "stages").iterdir()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; tests do not change it."""
    user = make_user(tmp_path_factory.mktemp("further") / "user")
    run_unreported(user / "run.yaml", artifact={**OWN, "also": ["brightness", "timestamp"]})
    return user


def model_of(run: PreparedRun, method: str) -> nn.Module:
    kept, original = run.run.out / "corrected" / f"{method}.safetensors", run.setting.model
    if method == "original":
        return original
    return load_corrected(original, kept, layer=run.setting.layer, pooling="max")


@torch.no_grad()
def answers(model: nn.Module, run: PreparedRun, artifact: str | None) -> np.ndarray:
    """Return what a whole model answers to the clean test images, one after the other, with an artifact or without."""
    images, found = run.setting.data.test_clean, []
    for row, id_ in enumerate(images.ids):
        picture, _ = images.pixels(row)
        if artifact is not None:
            rng = np.random.default_rng((run.run.seed, int(id_), zlib.crc32(artifact.encode())))
            picture, _ = Artifact.named(artifact)().stamp(picture, rng)
        found.append(int(model(images.transform(picture)[None]).argmax()))
    return np.array(found)


@pytest.mark.parametrize("artifact", ["brightness", "timestamp"])
def test_the_scores_are_those_of_whole_models_on_changed_pictures(finished: Path, artifact: str) -> None:
    run = prepare(finished / "run.yaml", artifact=OWN)
    labels, rows = run.setting.data.test_clean.labels, read_results(finished / "run")
    for method in METHODS:
        told = {row["metric"]: row for row in rows if (row["method"], row["artifact"]) == (method, artifact)}
        assert set(told) == {"flip_rate", "balanced_accuracy_biased"}
        model = model_of(run, method)
        before, after = answers(model, run, None), answers(model, run, artifact)
        flips = np.mean(before != after)
        recalls = [np.mean(after[labels == label] == label) for label in (0, 1)]
        assert float(told["flip_rate"]["value"]) == pytest.approx(flips, abs=1e-5)
        assert float(told["flip_rate"]["stderr"]) == pytest.approx(np.sqrt(flips * (1 - flips) / 52), abs=1e-5)
        assert float(told["balanced_accuracy_biased"]["value"]) == pytest.approx(np.mean(recalls), abs=1e-5)
        like = next(row for row in rows if row["method"] == method and row["split"] == "test" and row["chosen"] == "1")
        same = ("experiment", "cav", "target", "norm", "strength", "chosen", "seed")
        assert {name: told["flip_rate"][name] for name in same} == {name: like[name] for name in same}
        assert int(told["flip_rate"]["n"]) == 2 * ENOUGH
    values = {row["value"] for row in rows if row["artifact"] == artifact and row["metric"] == "flip_rate"}
    assert len(values) > 1, "the models differ"


def test_an_artifact_that_is_added_later_goes_on(finished: Path, tmp_path: Path, unreported: None) -> None:
    user = Path(shutil.copytree(finished, tmp_path / "user"))
    before = stages(user)
    api.run(prepare(user / "run.yaml", artifact={**OWN, "also": ["lsb", "timestamp"]}))
    after = stages(user)
    assert after.keys() - before.keys() == {f"{model}-with-lsb.json" for model in MODELS}
    assert {name: after[name] for name in before} == before
    assert {row["artifact"] for row in read_results(user / "run")} - {"", "without", "with"} == {"lsb", "timestamp"}
