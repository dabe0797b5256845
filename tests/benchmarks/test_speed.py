"""The speed benchmarks on the demo network: measures, records, resume, and the figures in the docs."""

from __future__ import annotations

import itertools
import json
import mmap
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from benchmarks.speed import (
    TRIAL,
    Benchmark,
    Machine,
    Measure,
    Outcome,
    Record,
    Sizes,
    Target,
    plan_stages,
    read_measures,
    run_benchmarks,
    write_plan,
)
from benchmarks.speed.__main__ import app
from benchmarks.speed.cached import walk
from benchmarks.speed.measures import rate, ratio
from benchmarks.speed.peak import correct, peak_of
from benchmarks.speed.setup import Subject
from benchmarks.speed.tasks import STATUS, zennit_heatmaps
from typer.testing import CliRunner

from hansfree._internal.progress import silent
from hansfree.corrections import RRClArC
from hansfree.errors import HansfreeError, OptionError, RunError
from hansfree.evaluation.heatmaps import compute_heatmaps

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "results" / "speed.md").read_text(encoding="utf-8")
ONCE = replace(TRIAL, turns=1)
FOUND = {  # the measures of each benchmark
    name: {f"{prefix}{word}" for word in words.split()}
    for name, prefix, words in (
        ("path", "demo.", "one_over_paper path_over_paper paper_seconds_per_image"),
        ("floor", "demo.", "path_over_forward path_over_forward_jpeg jpeg_images_per_second"),
        ("step", "demo.", "rr_step_over_vanilla_step"),
        ("rrr", "demo.rrr_", "over_paper grid_over_paper grid_seconds_per_image everywhere_over_paper "
         "grid_everywhere_over_paper"),
        ("lrp", "demo.heatmaps_", "over_zennit per_second"),
        ("cache", "demo.", "cache_speed_over_forward forward_images_per_second cache_images_per_second "
         "cache_bytes_per_image features_bytes_per_image"),
        ("growth", "demo.", "growth_images growth_classes growth_strengths strength_over_pass head_seconds_per_image"),
        ("run", "demo.", "run_over_forward run_operations_over_forward"),
        ("cav", "cav.", "svm_over_gridsearch ridge_over_gridsearch lasso_over_gridsearch logistic_over_gridsearch"),
        ("memory", "memory_", "200_over_100 400_over_100 peak_100 peak_200 peak_400"),
    )
}  # fmt: skip


@pytest.fixture(scope="module")
def subject():
    return Subject(ONCE, "demo")


# Measures and turns


def test_ratios_compare_within_a_turn():
    found = ratio("demo.path_over_forward", [3.0, 2.0, 5.0], [1.0, 2.0, 2.0], Target("at least", 0.95))
    assert found.samples == (3.0, 1.0, 2.5)
    assert (found.value, found.low, found.high) == (2.5, 1.0, 3.0)
    assert rate("demo.heatmaps_per_second", 8, [2.0, 4.0]).samples == (4.0, 2.0)
    with pytest.raises(ValueError, match="zip"):
        ratio("demo.path_over_forward", [1.0, 2.0], [1.0])
    assert [Target("at most", 1.1).verdict(value) for value in (1.1, 1.11)] == ["<= 1.1: met", "<= 1.1: not met"]
    assert Target("at least", 0.95).verdict(0.94) == ">= 0.95: not met"


# The benchmarks


@pytest.mark.parametrize("name", [name for name in FOUND if name != "memory"])
def test_a_benchmark_on_the_demo_network(name, subject):
    outcome = Benchmark.named(name)().measure(subject, silent)
    assert {measure.name for measure in outcome.measures} == FOUND[name]
    assert all(np.isfinite(measure.samples).all() for measure in outcome.measures)
    assert all(measure.low > 0 for measure in outcome.measures if measure.unit in ("images/s", "seconds", "bytes"))
    json.dumps(outcome.facts)
    if name == "run":
        assert set(outcome.facts["methods"]) == {"vanilla", "p-clarc", "a-clarc", "rr-clarc", "match"}
        assert outcome.measures[1].value > 6  # passes: of the two epochs of a network on half of the images alone
    if name == "cache":
        values = {measure.name: measure.value for measure in outcome.measures}
        at_layer, at_head = 4 * 128 * 2 * 2, 4 * 512 * 2  # float32; a value and a tangent
        assert at_layer < values["demo.cache_bytes_per_image"] < 2 * at_layer  # pooled channels, labels, ids
        assert at_head <= values["demo.features_bytes_per_image"] < 1.1 * at_head


def test_zennit_computes_the_same_heatmaps(subject):
    images = subject.images.train.batch(range(3)).image
    ours = compute_heatmaps(subject.model, images, 0)
    torch.testing.assert_close(zennit_heatmaps(subject, images), ours, rtol=1e-3, atol=1e-5)


def test_a_path_is_extrapolated_by_strengths_and_epochs(subject, monkeypatch):
    # The clock is read at the start, before and after the pass, when all is prepared, at the first step, before and
    # after the validation of each of the 4 epochs, after training, and after the selection.
    monkeypatch.setattr("benchmarks.speed.cached.clock", itertools.count(1).__next__)
    found = walk(subject.model, subject.layer, subject.images, subject.tuning, epochs_timed=4)
    passing, preparing, once, once_per_head, epoch = 2, 1, 2, 1, 2
    assert (found.passing, found.preparing) == (passing, preparing)
    assert found.seconds == passing + preparing + once + len(RRClArC.info.strengths) * (once_per_head + 10 * epoch)
    assert found.one == passing + preparing + once + once_per_head + 10 * epoch


def test_memory_runs_one_process_per_number(subject, monkeypatch, tmp_path):
    correct(70, tmp_path)
    assert len(list(tmp_path.rglob("shard-*.safetensors"))) == 2  # training and validation images
    started = []

    def run(command, **options):
        started.append(int(command[-2]))
        Path(command[-1]).write_text(str(1000 + started[-1]))
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr("subprocess.run", run)
    outcome = Benchmark.named("memory")().measure(subject, silent)
    assert started == [100, 200, 400]
    assert {measure.name for measure in outcome.measures} == FOUND["memory"]
    assert outcome.measures[1].samples == (1400 / 1100,)
    failed = SimpleNamespace(returncode=1, stderr="Traceback\nMemoryError: too much")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: failed)
    with pytest.raises(HansfreeError, match="with 100 images failed: MemoryError: too much"):
        Benchmark.named("memory")().measure(subject, silent)


def test_the_path_of_a_large_head_is_extrapolated(monkeypatch):
    monkeypatch.setattr("benchmarks.speed.setup._LARGE_HEAD", 100)
    subject = Subject(ONCE, "demo")
    outcome = Benchmark.named("path")().measure(subject, silent)
    plain = ("plain_path_over_paper", "head_seconds_per_image", "plain_head_seconds_per_image")
    assert {measure.name for measure in outcome.measures} == FOUND["path"] | {f"demo.{each}" for each in plain}
    assert (outcome.facts["our_strengths_timed"], outcome.facts["our_epochs_timed"]) == (1, 3)
    assert (subject.times, outcome.facts["images"]) == (4, 4 * ONCE.batch)
    assert outcome.facts["paper_steps"] == 4 * 10 * 22


@pytest.mark.skipif(not STATUS.exists(), reason="RssAnon is available on Linux only")
def test_the_memory_peak_includes_freed_memory():
    def take() -> None:
        with mmap.mmap(-1, 40_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
            held.write(b"x" * 40_000_000)
            time.sleep(0.3)  # until the watching thread has run, on a busy machine too

    assert peak_of(take) - peak_of(lambda: None) > 20_000_000


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"models": ("resnet8",)}, "Did you mean 'resnet18'"),
        ({"models": ()}, "At least one model"),
        ({"turns": 0}, "one turn"),
        ({"images": 320, "batch": 64}, "multiple of four batches"),
    ],
)
def test_invalid_sizes(options, fragment):
    with pytest.raises(OptionError, match=fragment):
        Sizes(**options)


# The record


@pytest.fixture
def path(tmp_path):
    return tmp_path / "speed.json"


@pytest.fixture
def ran(monkeypatch):
    """Replace all benchmarks by stubs that record that they ran."""
    ran = []
    for name, benchmark in Benchmark.members().items():

        def measure(self, subject, progress, name=name):
            ran.append((name, subject.name))
            return Outcome((Measure(f"{subject.name}.{name}", (1.0, 2.0, 3.0)),), {"images": 4}, (f"{name} ran",))

        monkeypatch.setattr(benchmark, "measure", measure)
        monkeypatch.setattr(benchmark, "takes", lambda self, subject: True)
    return ran


def test_an_interrupted_run_resumes(path, ran, monkeypatch):
    def broken(self, subject, progress):
        raise KeyboardInterrupt

    whole = Benchmark.named("rrr").measure
    monkeypatch.setattr(Benchmark.named("rrr"), "measure", broken)
    with pytest.raises(KeyboardInterrupt):
        run_benchmarks(Record(path, TRIAL, []), TRIAL)
    before = [name for name, _ in ran]
    assert before == list(Benchmark.members())[: len(before)]
    monkeypatch.setattr(Benchmark.named("rrr"), "measure", whole)
    for missing in (list(Benchmark.members())[len(before) :], []):
        ran.clear()
        run_benchmarks(Record(path, TRIAL, []), TRIAL)
        assert [name for name, _ in ran] == missing


def test_other_conditions_cannot_resume(path, ran, monkeypatch):
    run_benchmarks(Record(path, TRIAL, []), TRIAL, ["step"])
    with pytest.raises(RunError, match=r"\(turns differ\).*--out.*--again"):
        Record(path, replace(TRIAL, turns=5), [])
    assert Record(path, replace(TRIAL, turns=5), [], again=True).measures == []
    facts = {**Record(path, TRIAL, []).conditions["machine"], "code": "other", "cores": 1000}
    monkeypatch.setattr("benchmarks.speed.measures.machine_facts", lambda: facts)
    with pytest.raises(RunError, match="code, cores differ"):
        Record(path, TRIAL, [])


def test_the_command_writes_numbers_and_a_plot(path, monkeypatch):
    measures = (Measure("demo.a", (1.0, 1.2, 0.9), target=Target("at most", 1.1)), Measure("demo.c", (2e6,), "bytes"))
    monkeypatch.setattr(Benchmark.named("step"), "measure", lambda *_: Outcome(measures, {}, ("demo: a note.",)))
    for quick in ((), ("--quick", "--again")):
        words = ["--benchmark", "step", "--model", "demo", "--out", str(path), *quick]
        result = CliRunner(env={"COLUMNS": "100"}).invoke(app, words)
        assert result.exit_code == 0, result.output
        rows = [line.split() for line in result.output.splitlines()]
        assert ["demo.a", "1", "0.9", "1.2", *(() if quick else ("<=", "1.1:", "met"))] in rows
        assert ["demo.c", "2", "MB", "2", "MB", "2", "MB"] in rows
        assert "demo: a note." in result.output
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("text", ["", "[]", '{"about": 3}', '{"about": {"torch": "2.4"}}'])
def test_other_files_are_rejected(path, text):
    path.write_text(text)
    with pytest.raises(RunError, match=r"not a speed record|older version"):
        Record(path, TRIAL, [])


# The plan


def test_a_stage_is_the_images_over_the_rate():
    rates = {"jpeg_images_per_second": 100.0, "cache_images_per_second": 20.0, "cache_bytes_per_image": 1e5}
    rates |= {"features_bytes_per_image": 4e3, "head_seconds_per_image": 1e-5, "rrr_grid_seconds_per_image": 0.5}
    rates |= {"heatmaps_per_second": 2.0, "paper_seconds_per_image": 0.05}
    measures = {f"demo.{name}": Measure(f"demo.{name}", (value,)) for name, value in rates.items()}
    here, there = Machine("here"), Machine("there", arithmetic=50, reading=2, dollars_per_hour=3.0)
    passing, features, path, rrr, heatmaps, paper = plan_stages(measures, "demo", images=36_000, marked=360)
    assert passing.hours(here) == pytest.approx(36_000 / 100 / 3600 + 36_000 / 20 / 3600)
    assert passing.hours(there) == pytest.approx(0.1 / 2 + 0.5 / 50)
    assert (passing.bytes, features.bytes) == (3.6e9, 1.44e8)
    assert path.hours(here) == pytest.approx(36_000 * 220 * 1e-5 / 3600)
    assert rrr.hours(here) == pytest.approx((360 * 10 * 0.5 + 36_000 * 50 * 1e-5) / 3600)
    assert heatmaps.hours(here) == pytest.approx(500 / 3600)
    assert paper.hours(here) == pytest.approx(220 * 0.1 + 36_000 * 220 * 0.05 / 3600)
    lines = write_plan(measures, ["demo"], [here, there], images=36_000, marked=360).splitlines()
    assert lines[0] == "| model | stage | on disk | here | there |"
    assert lines[2] == "| demo | the pass | 3.6 GB | 0.6 h | 0.06 h, $0.18 |"
    with pytest.raises(OptionError, match=r"demo\.heatmaps_per_second"):
        plan_stages({k: v for k, v in measures.items() if "heatmaps" not in k}, "demo", images=1, marked=0)


# The committed page


def number(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


@pytest.mark.parametrize("model", ["resnet18", "efficientnet_b0", "vgg16"])
def test_the_page_quotes_the_record(model):
    measures = read_measures(ROOT / "results" / "speed.json")
    for name in ("path_over_paper", "one_over_paper", "path_over_forward", "path_over_forward_jpeg",
                 "cache_speed_over_forward"):  # fmt: skip
        found = measures[f"{model}.{name}"]
        assert f"{number(found.value)} ({number(found.low)} to {number(found.high)})" in PAGE


def test_the_plan_on_the_page(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    exec(PAGE.split("```python\n")[1].split("```")[0], {})
    assert capsys.readouterr().out.strip() in PAGE
