"""Methods of the whole network in a run: selection, evidence, export, resume."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hansfree import api
from hansfree.corrections.deep import Match
from hansfree.corrections.training.model_loop import Checkpoint
from hansfree.errors import DivergedError, OptionError
from hansfree.export import load_corrected
from hansfree.models import load_model
from hansfree.pipeline.checks import prepare_run
from hansfree.pipeline.config import read_run_file
from tests.conftest import Call
from tests.pipeline.user import COUNTS, make_user, write_run

DEEP = {"methods": ["match", "transplant"], "strengths": {"match": [0.3, 1]}, "network": {"epochs": 2}}


def read_rows(run: Path) -> list[dict[str, str]]:
    with (run / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_file_with_methods_of_the_whole_network_runs_and_exports(
    user: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.chdir(user)
    write_run(user / "run.yaml", artifact={"also": "lsb"}, correction=DEEP)
    code, _, err = call("run", "run.yaml")
    assert code == 0, err
    rows = [row for row in read_rows(user / "run") if row["method"] == "match"]
    assert {row["strength"] for row in rows} == {"0.3", "1"}
    assert {row["metric"] for row in rows if row["artifact"] == "lsb"} == {"flip_rate", "balanced_accuracy_biased"}
    assert {"accuracy_clean", "accuracy_biased", "tcav"} <= {row["metric"] for row in rows if row["chosen"] == "1"}
    results = json.loads((user / "run" / "results.json").read_text())
    assert "refitted" in results["selection"]["match"]["remark"]
    assert not (user / "run" / "checkpoints" / "match").exists()
    # all layers changed, and the exported file gives what the run evaluated
    before, after = load_file(user / "two.safetensors"), load_file(user / "run" / "corrected" / "match.safetensors")
    assert all(not torch.equal(before[name], after[name]) for name in before)
    code, _, err = call("export", "run", "match", "--out", "exported")
    assert code == 0, err
    original = load_model("net.py:build", weights="two.safetensors")
    exported = load_corrected(original, user / "exported" / "model.safetensors")
    assert all(torch.equal(tensor, after[name]) for name, tensor in exported.state_dict().items())


def test_a_stopped_run_resumes_within_a_strength_with_the_same_results(
    original_user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sections = {"correction": {**DEEP, "methods": ["match"], "strengths": {"match": [0.3, 1]}}}
    whole = write_run(original_user / "deep-whole.yaml", out=str(tmp_path / "whole"), **sections)
    stopped = write_run(original_user / "deep-stopped.yaml", out=str(tmp_path / "stopped"), **sections)
    api.run(prepare_run(read_run_file(whole)))
    written: list[int] = []
    write = Checkpoint.write

    def stop(self: Checkpoint, epoch: int, *state: object) -> None:
        write(self, epoch, *state)  # type: ignore[arg-type]
        written.append(epoch)
        if len(written) == 3:  # the first epoch of the second strength
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "write", stop)
    with pytest.raises(KeyboardInterrupt):
        api.run(prepare_run(read_run_file(stopped)))
    api.run(prepare_run(read_run_file(stopped)))
    assert written == [1, 2, 1, 2]
    ours, theirs = (
        [row for row in read_rows(tmp_path / name) if row["method"] == "match"] for name in ("stopped", "whole")
    )
    assert [{**row, "experiment": ""} for row in ours] == [{**row, "experiment": ""} for row in theirs]


def test_without_counter_examples_strengths_are_compared_by_transplants_or_association(tmp_path: Path) -> None:
    counts = {**COUNTS, ("val", 1, 1): 2, ("train", 1, 1): 8}
    user = make_user(tmp_path / "user", counts)
    correction = {**DEEP, "methods": ["match"], "strengths": {"match": [0.3]}}
    file = write_run(user / "run.yaml", artifact={"transplant": False}, correction=correction)
    api.run(prepare_run(read_run_file(file)))
    results = json.loads((user / "run" / "results.json").read_text())
    selection = results["selection"]["match"]
    assert selection["derivative"]["chosen"] is None
    assert selection["strength"] == 0.3 or "better than the original" in selection["reason"]


@pytest.mark.parametrize(
    "sections",
    [
        {"model": {"output": "label", "label": "dark"}, "correction": DEEP},
        {"artifact": {"biased_class": "dark", "keep": ["brightness"]}, "correction": DEEP},
    ],
)
def test_what_a_whole_network_method_cannot_do_is_refused(original_user: Path, sections: dict[str, object]) -> None:
    file = write_run(original_user / "refused.yaml", **sections)
    with pytest.raises(OptionError, match="match"):
        prepare_run(read_run_file(file))


def test_a_network_that_diverged_is_rejected_with_the_reason(
    original_user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverge(self: Match, *args: object, **options: object) -> None:
        raise DivergedError("The loss is nan.")

    monkeypatch.setattr(Match, "_train", diverge)
    file = write_run(
        original_user / "diverged.yaml", out=str(tmp_path / "run"), correction={"methods": ["match"], "strengths": {}}
    )
    result = api.run(prepare_run(read_run_file(file)))
    assert result.recommended is None
    assert not (tmp_path / "run" / "corrected" / "match.safetensors").exists()
    selection = json.loads((tmp_path / "run" / "results.json").read_text())["selection"]["match"]
    assert selection["reason"] == "The loss is nan"
    assert selection["diverged"] == list(Match.info.strengths)
