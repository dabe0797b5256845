"""A run that went wrong by a user's slip or a damaged file: told with what to do, and mended by doing it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hansfree import api
from hansfree.api import Result
from hansfree.errors import RunError
from hansfree.pipeline.checks import prepare_run
from hansfree.pipeline.config import read_run_file
from tests.pipeline.user import write_run


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no report, which takes most of a tiny run's time."""
    monkeypatch.setattr("hansfree.api.write_report", lambda out: out / "report.html")


def run(user: Path, **sections: Any) -> Result:
    quick = {"methods": ["vanilla"], "epochs": 1}
    sections["correction"] = {**quick, "strengths": {}, **sections.get("correction", {})}
    return api.run(prepare_run(read_run_file(write_run(user / "run.yaml", **sections))))


def test_classes_in_the_wrong_order_are_told_and_nothing_is_recommended(user: Path) -> None:
    methods = {"methods": ["vanilla", "p-clarc"]}
    finished = run(user, data={"classes": ["bright", "dark"]}, correction=methods)
    assert finished.recommended is None
    told = " ".join(finished.sentences)
    assert "Most likely data.classes is not in the order of the model's outputs: [dark, bright] would give" in told
    assert not (user / "run" / "exported").exists()


@pytest.mark.parametrize("damage", ["deleted", "cut off"])
def test_lost_cavs_are_made_anew_as_the_sentence_says(user: Path, damage: str) -> None:
    run(user)
    cavs, stage = user / "run" / "cavs.safetensors", user / "run" / "stages" / "cavs.json"
    before = cavs.read_bytes()
    if damage == "deleted":
        cavs.unlink()
    else:
        cavs.write_bytes(before[:-50])
    more = {"methods": ["vanilla", "p-clarc"]}
    with pytest.raises(RunError, match=r"cavs\.safetensors.* Delete .*cavs\.json, and type the same command again"):
        run(user, correction=more)
    stage.unlink()
    assert "p-clarc" in {row.method for row in run(user, correction=more).rows}
    assert cavs.read_bytes() == before


def test_damaged_answers_are_made_anew_as_the_sentence_says(user: Path) -> None:
    run(user)
    kept = user / "run" / "stages" / "vanilla.npz"
    before = kept.read_bytes()
    kept.write_bytes(before[:-50])
    with pytest.raises(RunError, match=r"vanilla\.npz is damaged\. Delete it and .*vanilla\.json, and run"):
        run(user)
    kept.unlink()
    kept.with_suffix(".json").unlink()
    run(user)
    assert kept.read_bytes() == before
