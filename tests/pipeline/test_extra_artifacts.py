"""Further artifacts of a run file: scored as if by hand, kept stage by stage, added later, and on the page."""

from __future__ import annotations

import csv
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hansfree import api
from hansfree.data.artifacts import Artifact
from hansfree.evaluation.results import load_results
from hansfree.export import load_corrected
from hansfree.pipeline.checks import PreparedRun, prepare_run
from hansfree.pipeline.config import read_run_file
from hansfree.report.tables import side_effect_table
from tests.pipeline.user import ENOUGH, make_user, write_run

METHODS = ("original", "vanilla", "p-clarc", "rr-clarc")
MODELS = ("original", "vanilla", "p-clarc", "rr-clarc-0.1")  # in the names of stages, with the strength that was taken
OWN = {"insert": "patch", "file": "sticker.png", "place": "top-left"}


def prepared(user: Path, **artifact: Any) -> PreparedRun:
    return prepare_run(read_run_file(write_run(user / "run.yaml", artifact=artifact)))


def table(user: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((user / "run" / "results.csv").read_text().splitlines()))


def stages(user: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (user / "run" / "stages").iterdir()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with the page drawn; nobody may change what it wrote."""
    user = make_user(tmp_path_factory.mktemp("further") / "user")
    api.run(prepared(user, **OWN, also=["brightness", "timestamp"]))
    return user


@pytest.fixture
def unreported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansfree.api.write_report", lambda out: out / "report.html")


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
    run = prepared(finished, **OWN)
    labels, rows = run.setting.data.test_clean.labels, table(finished)
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


def test_no_other_score_changes(finished: Path, tmp_path: Path, unreported: None) -> None:
    user = Path(shutil.copytree(finished, tmp_path / "user", ignore=shutil.ignore_patterns("run")))
    api.run(prepared(user, **OWN))
    assert table(user) == [row for row in table(finished) if row["artifact"] in ("", "without", "with")]
    assert load_results(user / "run").further == ()


def test_a_second_run_computes_nothing_again(
    finished: Path, tmp_path: Path, unreported: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = Path(shutil.copytree(finished, tmp_path / "user"))
    before, content = stages(user), (user / "run" / "results.csv").read_bytes()
    assert {f"{model}-with-{artifact}.json" for model in MODELS for artifact in ("brightness", "timestamp")} <= set(
        before
    )

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("it is kept")

    monkeypatch.setattr("hansfree.api.measure_side_effects", fail)
    monkeypatch.setattr("hansfree.api.collect", fail)
    api.run(prepared(user, **OWN, also=["brightness", "timestamp"]))
    assert stages(user) == before
    assert (user / "run" / "results.csv").read_bytes() == content


def test_an_artifact_that_is_added_later_goes_on(finished: Path, tmp_path: Path, unreported: None) -> None:
    user = Path(shutil.copytree(finished, tmp_path / "user"))
    before = stages(user)
    api.run(prepared(user, **OWN, also=["lsb", "timestamp"]))
    after = stages(user)
    assert after.keys() - before.keys() == {f"{model}-with-lsb.json" for model in MODELS}
    assert {name: after[name] for name in before} == before
    assert {row["artifact"] for row in table(user)} - {"", "without", "with"} == {"lsb", "timestamp"}


def test_the_page_shows_the_matrix_with_the_runs_own_artifact(finished: Path) -> None:
    matrix = side_effect_table(load_results(finished / "run"))
    assert matrix is not None
    assert [head for head, _ in matrix.heads] == ["No artifact", "sticker (of this run)", "brightness", "timestamp"]
    assert [line.title for line in matrix.lines] == ["Original", "Vanilla", "P-ClArC", "RR-ClArC"]
    page = (finished / "run" / "report.html").read_text(encoding="utf-8")
    assert "<h2>Side effects under other artifacts</h2>" in page


def test_an_artifact_that_is_in_the_scenes_has_no_column(user: Path, unreported: None) -> None:
    api.run(prepared(user, also=["lsb"]))
    results = load_results(user / "run")
    assert not results.is_inserted, "the flips are another artifact's"
    matrix = side_effect_table(results)
    assert matrix is not None
    assert [head for head, _ in matrix.heads] == ["No artifact", "lsb"]
    assert {column.n for column in matrix.columns} == {str(2 * ENOUGH)}, "the images that have none by nature"


def test_the_disk_is_told_with_the_further_images(user: Path) -> None:
    told = [dict(prepared(user, also=also).facts)["disk"] for also in ([], ["lsb", "timestamp"])]
    alone, both = (int(text.partition(" for ")[2].split()[0]) for text in told)
    assert both - alone == 2 * 2 * ENOUGH


def test_a_method_without_a_model_is_left_out(user: Path, unreported: None) -> None:
    correction = {"methods": ["vanilla", "rr-clarc"], "strengths": {"rr-clarc": [1e12]}, "learning_rate": 1}
    path = write_run(user / "run.yaml", artifact={"also": "lsb"}, correction=correction)
    api.run(prepare_run(read_run_file(path)))
    assert not (user / "run" / "corrected" / "rr-clarc.safetensors").exists()
    assert {row["method"] for row in table(user) if row["artifact"] == "lsb"} == {"original", "vanilla"}
