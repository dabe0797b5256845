from __future__ import annotations

import json

import pytest
from benchmarks.speed.__main__ import app
from benchmarks.speed.measures import Measure
from typer.testing import CliRunner

from benchmarks.speed import Outcome, Race, Target


def bench(*words):
    return CliRunner(env={"COLUMNS": "100"}).invoke(app, list(words))


def test_a_trial_writes_numbers_and_plot_and_judges_nothing(tmp_path):
    out = tmp_path / "trial.json"
    result = bench("--quick", "--race", "step", "--race", "cache", "--out", str(out))
    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text())
    for name in ("demo.rr_step_over_vanilla_step", "demo.cache_speed_over_forward"):
        assert 0 < found[f"{name}.low"] <= found[name] <= found[f"{name}.high"]
        assert name in result.output
    assert list(found["about"]["races"]) == ["step.demo", "cache.demo"]
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "too small to tell" in result.output
    assert "met" not in result.output


def test_the_table_says_which_targets_are_met(tmp_path, monkeypatch):
    measures = (
        Measure("demo.a", (1.0, 1.2, 0.9), target=Target("at most", 1.1)),
        Measure("demo.b", (0.9,), target=Target("at least", 0.95)),
        Measure("demo.c", (2e6,), "bytes"),
    )
    monkeypatch.setattr(Race.named("step"), "measure", lambda *_: Outcome(measures, {}, ("demo: from one.",)))
    result = bench("--race", "step", "--model", "demo", "--out", str(tmp_path / "bench.json"))
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.output.splitlines()]
    assert ["demo.a", "1", "0.9", "1.2", "<=", "1.1:", "met"] in rows
    assert ["demo.b", "0.9", "0.9", "0.9", ">=", "0.95:", "not", "met"] in rows
    assert ["demo.c", "2", "MB", "2", "MB", "2", "MB"] in rows
    assert "demo: from one." in result.output


@pytest.mark.parametrize("name", Race.members())
def test_the_help_names_every_race(name):
    assert name in bench("--help").output
