"""Methods of the whole network in a run: selection, evidence, export, resume."""

from __future__ import annotations

import copy
import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from hansfree import api
from hansfree._internal.store import open_run
from hansfree.corrections.deep import Match
from hansfree.corrections.training.model_loop import Checkpoint
from hansfree.errors import DivergedError
from hansfree.export import load_corrected
from hansfree.models import load_model
from hansfree.pipeline.checks import prepare_run
from hansfree.pipeline.config import read_run_file
from hansfree.pipeline.experiment import Experiment
from hansfree.pipeline.identity import run_config
from hansfree.pipeline.paths import Task
from hansfree.reasons import Reason, ReasonCode
from tests.conftest import Call
from tests.pipeline.user import COUNTS, make_user, read_results, write_run

DEEP = {"methods": ["match", "transplant"], "strengths": {"match": [0.3, 1]}, "network": {"epochs": 2}}


@pytest.fixture(scope="module")
def finished(original_user: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("deep") / "run"
    file = write_run(original_user / "deep.yaml", out=str(out), artifact={"also": "lsb"}, correction=DEEP)
    api.run(prepare_run(read_run_file(file)))
    return out


def test_a_run_file_with_methods_of_the_whole_network_runs_and_exports(
    finished: Path, original_user: Path, tmp_path: Path, call: Call
) -> None:
    rows = [row for row in read_results(finished) if row["method"] == "match"]
    assert {row["strength"] for row in rows} == {"0.3", "1"}
    assert {row["metric"] for row in rows if row["artifact"] == "lsb"} == {"flip_rate", "balanced_accuracy_biased"}
    assert {"accuracy_clean", "accuracy_biased", "tcav"} <= {row["metric"] for row in rows if row["chosen"] == "1"}
    results = json.loads((finished / "results.json").read_text())
    assert [each["code"] for each in results["selection"]["match"]["details"]] == [ReasonCode.TCAV_REFITTED]
    assert results["meta"]["depth"]["n_images"] == COUNTS["train", 0, 0] + COUNTS["train", 0, 1]
    report = (finished / "report.html").read_text()
    assert "The artifact shows in none of 3 stages (held-out AUC" in report
    assert "The run trained corrections of the whole network." in report
    assert not list((finished / "checkpoints").glob("match*"))
    # all layers changed, and the exported file gives what the run evaluated
    before, after = load_file(original_user / "two.safetensors"), load_file(finished / "corrected/match.safetensors")
    assert all(not torch.equal(before[name], after[name]) for name in before)
    code, _, err = call("export", finished, "match", "--out", tmp_path / "exported")
    assert code == 0, err
    card = (tmp_path / "exported" / "MODEL_CARD.md").read_text()
    assert "All layers were changed" in card
    assert "refitted to this network" in card
    original = load_model(f"{original_user / 'net.py'}:build", weights=original_user / "two.safetensors")
    exported = load_corrected(original, tmp_path / "exported" / "model.safetensors")
    assert all(torch.equal(tensor, after[name]) for name, tensor in exported.state_dict().items())


def test_a_stopped_run_resumes_within_a_strength_with_the_same_results(
    finished: Path, original_user: Path, tmp_path: Path, unreported: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    correction = {**DEEP, "methods": ["match"]}
    file = write_run(original_user / "deep-stopped.yaml", out=str(tmp_path / "stopped"), correction=correction)
    written: list[int] = []
    write = Checkpoint.write

    def stop(self: Checkpoint, epoch: int, *state: object) -> None:
        write(self, epoch, *state)  # type: ignore[arg-type]
        written.append(epoch)
        if len(written) == 3:  # the first epoch of the second strength
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "write", stop)
    with pytest.raises(KeyboardInterrupt):
        api.run(prepare_run(read_run_file(file)))
    api.run(prepare_run(read_run_file(file)))
    assert written == [1, 2, 1, 2]
    ours, theirs = (
        [{**row, "experiment": ""} for row in read_results(run) if row["method"] == "match" and not row["artifact"]]
        for run in (tmp_path / "stopped", finished)
    )
    assert ours == theirs


def test_each_strength_is_a_task_whose_network_is_not_trained_again(
    finished: Path, original_user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    correction = {**DEEP, "methods": ["match"]}
    file = write_run(original_user / "deep-tasks.yaml", out=str(tmp_path / "tasks"), correction=correction)
    prepared, written = prepare_run(read_run_file(file)), list[int]()
    with open_run(tmp_path / "tasks", run_config(prepared)) as store:
        experiment = Experiment(prepared.setting, store)
        first, *others = experiment.plan_tasks("match")
        assert [first, *others] == [[Task("match", "strengths", 0), Task("match", "strengths", 1)], [Task("match")]]
        for task in reversed(first):
            experiment.run_task(task)
        monkeypatch.setattr(Checkpoint, "write", lambda *args: written.append(1))
        rows = experiment.rows_for(experiment.plain("match"))
    assert not written
    expected = [row for row in read_results(finished) if row["method"] == "match"]
    ours = [row.value for row in rows if row.metric == "accuracy_clean"]
    assert ours == pytest.approx([float(row["value"]) for row in expected if row["metric"] == "accuracy_clean"])


@pytest.mark.usefixtures("unreported")
def test_without_counter_examples_strengths_are_compared_by_transplants_or_association(tmp_path: Path) -> None:
    counts = {**COUNTS, ("val", 1, 1): 2, ("train", 1, 1): 8}
    user = make_user(tmp_path / "user", counts)
    correction = {**DEEP, "methods": ["match"], "strengths": {"match": [0.3]}}
    file = write_run(user / "run.yaml", artifact={"transplant": False}, correction=correction)
    api.run(prepare_run(read_run_file(file)))
    results = json.loads((user / "run" / "results.json").read_text())
    selection = results["selection"]["match"]
    assert selection["derivative"]["chosen"] is None
    assert selection["strength"] == 0.3 or selection["reason"]["code"] == ReasonCode.NO_BETTER_THAN_ORIGINAL


def test_a_network_that_diverged_is_rejected_with_the_reason(
    original_user: Path, tmp_path: Path, unreported: None, monkeypatch: pytest.MonkeyPatch
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
    assert selection["reason"] == asdict(Reason(ReasonCode.TRAINING_FAILED, {"errors": ["The loss is nan"]}))
    assert selection["diverged"] == list(Match.info.strengths)


@pytest.mark.usefixtures("unreported")
@pytest.mark.parametrize("fault", ["nan", "lost class", "over budget"])
def test_a_bad_network_is_never_exported(
    original_user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call, fault: str
) -> None:
    def spoil(self: Match, model: nn.Module, *args: object, **options: object) -> nn.Module:
        network = copy.deepcopy(model)
        last = network[-1]
        with torch.no_grad():
            if fault == "over budget":  # both classes are predicted, and half of the predictions are wrong
                last.weight.neg_()
                last.bias.neg_()
            else:
                last.bias[0] = float("nan") if fault == "nan" else -1e6
        return network

    monkeypatch.setattr(Match, "_train", spoil)
    correction = {"methods": ["match"], "strengths": {"match": [1.0]}}
    file = write_run(original_user / f"{fault}.yaml", out=str(tmp_path / "run"), correction=correction)
    assert api.run(prepare_run(read_run_file(file))).recommended is None
    assert not (tmp_path / "run" / "exported").exists()
    code, _, _ = call("export", tmp_path / "run", "match", "--out", tmp_path / "exported")
    assert code == 1
    assert not (tmp_path / "exported").exists()
