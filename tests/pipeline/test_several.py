"""Several artifacts in one run: the joint correction takes both shortcuts, a single one leaves the other."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hansfree import api
from hansfree.api import Result
from hansfree.cavs import load_cavs
from hansfree.evaluation.results import load_results
from hansfree.pipeline.checks import prepare_run
from hansfree.pipeline.config import read_run_file
from hansfree.report import write_report
from hansfree.report.tables import side_effect_table
from hansfree.report.text import describe_setting, write_verdict
from tests.pipeline.lesions import make_lesions, write_lesions_run

METHODS = ("p-clarc", "rr-clarc")
RUNS = {"single": {"also": "lsb"}, "both": {"remove": "lsb"}, "kept": {"keep": ["lsb"]}}
Flips = Callable[[str, str, str | None], float]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """Three runs on one network; nobody may change what they wrote."""
    user = make_lesions(tmp_path_factory.mktemp("lesions") / "user")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hansfree.api.write_report", lambda out: out / "report.html")
        return {
            name: api.run(prepare_run(read_run_file(write_lesions_run(user / "run.yaml", out=name, **artifact))))
            for name, artifact in RUNS.items()
        }


@pytest.fixture(scope="module")
def flips(runs: dict[str, Result]) -> Flips:
    def found(run: str, method: str, artifact: str | None) -> float:
        (value,) = (
            row.value
            for row in runs[run].rows
            if (row.method, row.metric, row.artifact, row.chosen, row.split)
            == (method, "flip_rate", artifact, 1, "test")
        )
        return value

    return found


def folder(runs: dict[str, Result], name: str) -> Path:
    return runs[name].report.parent


def meta(runs: dict[str, Result], name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder(runs, name) / "results.json").read_text())["meta"]
    return content


@pytest.mark.parametrize("method", METHODS)
def test_the_joint_correction_takes_both_shortcuts_and_the_single_one_leaves_the_other(
    flips: Flips, method: str
) -> None:
    own, other = None, "lsb"
    assert flips("single", "original", own) > 0.6
    assert flips("single", "original", other) > 0.4
    assert flips("single", method, own) < flips("single", "original", own) - 0.05
    assert flips("single", method, other) > flips("single", "original", other) - 0.05, "the single one leaves it"
    assert flips("both", method, own) < flips("both", "original", own) - 0.05
    assert flips("both", method, other) < flips("both", "original", other) - 0.2


@pytest.mark.parametrize("method", METHODS)
def test_what_is_kept_stays(flips: Flips, runs: dict[str, Result], method: str) -> None:
    assert flips("kept", method, None) < flips("kept", "original", None) - 0.05
    assert abs(flips("kept", method, "lsb") - flips("kept", "original", "lsb")) < 0.1
    cavs = load_cavs(folder(runs, "kept") / "cav-signal-joint.safetensors")
    own, kept, joint = (cavs[name].directions_ for name in ("of timestamp", "of lsb", "joint"))
    assert abs(own @ kept.T).item() > 0.05, "else there was nothing to take out"
    np.testing.assert_allclose(joint @ kept.T, 0, atol=1e-9)
    assert meta(runs, "kept")["removed"]["timestamp"] == pytest.approx(
        np.degrees(np.arccos(abs(own @ kept.T))).item(), abs=1e-3
    )


def test_the_direction_that_is_put_in_is_learned_from_images_without_the_own_artifact(
    runs: dict[str, Result],
) -> None:
    cavs = load_cavs(folder(runs, "both") / "cav-signal-joint.safetensors")
    with (folder(runs, "both").parent / "labels.csv").open(newline="") as file:
        clean = [row for row in csv.DictReader(file) if (row["split"], row["artifact"]) == ("train", "0")]
    assert cavs["of lsb"].class_count_.tolist() == [len(clean), len(clean)]
    assert cavs["of timestamp"].class_count_.sum() < len(clean), "of the biased class only"


def test_every_row_says_what_was_removed_and_kept(runs: dict[str, Result]) -> None:
    told = {name: {row.cav for row in run.rows if row.method in METHODS} for name, run in runs.items()}
    assert told == {
        "single": {"signal"},
        "both": {"signal: timestamp + lsb"},
        "kept": {"signal: timestamp; kept: lsb"},
    }
    assert "removed" not in meta(runs, "single")
    assert meta(runs, "both") | {"removed": {"timestamp": 90.0, "lsb": 90.0}, "protected": []} == meta(runs, "both")


def test_tcav_and_the_doctor_are_of_the_own_artifact(runs: dict[str, Result]) -> None:
    for file in ("diagnostics.json", "cavs.safetensors"):
        assert len({(folder(runs, name) / file).read_bytes() for name in RUNS}) == 1
    scores = {
        tuple(row.value for row in run.rows if row.method == "original" and row.split == "test")
        for run in runs.values()
    }
    assert len(scores) == 1


@pytest.mark.parametrize(
    ("name", "setting", "verdict", "head"),
    [
        (
            "both",
            "remove timestamp and lsb together; all others know timestamp only.",
            "Inserted into the same images, lsb (removed too) changes ",
            "lsb (removed too)",
        ),
        (
            "kept",
            "remove timestamp and keep lsb; all others know timestamp only. Degrees to what is kept, 90 where ",
            "Inserted into the same images, lsb (kept) changes ",
            "lsb (kept)",
        ),
    ],
)
def test_the_report_and_the_verdict_say_it(
    runs: dict[str, Result], name: str, setting: str, verdict: str, head: str
) -> None:
    results = load_results(folder(runs, name))
    assert setting in describe_setting(results)
    assert verdict in write_verdict(results).others
    assert any(verdict in sentence for sentence in runs[name].sentences)
    table = side_effect_table(results)
    assert table is not None
    assert [told for told, _ in table.heads] == ["No artifact", "timestamp (of this run)", head]


def test_the_page_and_the_card_say_it(runs: dict[str, Result]) -> None:
    page = write_report(folder(runs, "both")).read_text(encoding="utf-8")
    assert "corrections along a direction were made against those “removed too”" in page
    assert "which no correction here was made against" not in page
    assert "signal: timestamp + lsb" in (folder(runs, "both") / "results.csv").read_text(encoding="utf-8")
