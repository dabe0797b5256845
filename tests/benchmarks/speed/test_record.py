from __future__ import annotations

import json
from dataclasses import replace

import pytest
from benchmarks.speed.measures import Measure

from benchmarks.speed import TRIAL, Outcome, Race, Record, Target, read_measures, run_bench
from hansfree.errors import RunError, UnknownNameError

MEASURE = Measure("demo.path_over_forward", (1.3, 1.0, 1.2), "ratio", Target("at most", 1.1))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "bench.json"


@pytest.fixture
def ran(monkeypatch):
    """Replace all races by ones that only say that they ran."""
    ran = []
    for name, race in Race.members().items():

        def measure(self, subject, progress, name=name):
            ran.append((name, subject.name))
            measures = (Measure(f"{subject.name}.{name}", (1.0, 2.0, 3.0)),)
            return Outcome(measures, {"images": 4}, (f"{name} ran",))

        monkeypatch.setattr(race, "measure", measure)
        monkeypatch.setattr(race, "takes", lambda self, subject: True)
    return ran


def test_the_file_is_flat_and_says_what_it_was_measured_on(path):
    Record(path, TRIAL, ["hansfree", "bench"]).add("floor.demo", Outcome((MEASURE,), {"images": 4}), 2.5)
    content = json.loads(path.read_text())
    about = content.pop("about")
    assert content == {
        "demo.path_over_forward": 1.2,
        "demo.path_over_forward.low": 1.0,
        "demo.path_over_forward.high": 1.3,
    }
    assert about["command"] == ["hansfree", "bench"]
    assert about["sizes"]["batch"] == TRIAL.batch
    assert {"processor", "cores", "threads", "torch", "hansfree", "code"} <= about["machine"].keys()
    assert about["races"]["floor.demo"]["seconds"] == 2.5
    assert about["races"]["floor.demo"]["measures"][0]["samples"] == [1.3, 1.0, 1.2]


def test_what_was_written_is_read_back(path):
    Record(path, TRIAL, []).add("floor.demo", Outcome((MEASURE,), {"images": 4}, ("a note",)), 1.0)
    again = Record(path, TRIAL, [])
    assert "floor.demo" in again
    assert again.measures == [MEASURE]
    assert again.notes == ["a note"]
    assert read_measures(path) == {MEASURE.name: MEASURE}


def test_every_race_is_kept_as_soon_as_it_is_over_and_a_second_run_skips_it(path, ran):
    run_bench(Record(path, TRIAL, []), TRIAL)
    assert {name for name, _ in ran} == set(Race.members())
    assert len(read_measures(path)) == len(ran) == len(Race.members())
    ran.clear()
    run_bench(Record(path, TRIAL, []), TRIAL)
    assert ran == []


def test_a_run_that_broke_off_goes_on_with_what_is_missing(path, ran, monkeypatch):
    def broken(self, subject, progress):
        raise KeyboardInterrupt

    whole = Race.named("rrr").measure
    monkeypatch.setattr(Race.named("rrr"), "measure", broken)
    with pytest.raises(KeyboardInterrupt):
        run_bench(Record(path, TRIAL, []), TRIAL)
    before = [name for name, _ in ran]
    assert before == list(Race.members())[: len(before)]
    monkeypatch.setattr(Race.named("rrr"), "measure", whole)
    ran.clear()
    run_bench(Record(path, TRIAL, []), TRIAL)
    assert [name for name, _ in ran] == list(Race.members())[len(before) :]


def test_chosen_races_run_once_per_model_and_others_once(path, ran):
    sizes = replace(TRIAL, models=("resnet18", "vgg16"))
    run_bench(Record(path, sizes, []), sizes, ["cav", "step"])
    assert ran == [("step", "resnet18"), ("step", "vgg16"), ("cav", "resnet18")]


def test_again_measures_anew_what_was_chosen_and_keeps_the_rest(path, ran):
    run_bench(Record(path, TRIAL, []), TRIAL, ["step", "cav"])
    ran.clear()
    run_bench(Record(path, TRIAL, [], again=True), TRIAL, ["cav"], again=True)
    assert ran == [("cav", "demo")]
    assert set(read_measures(path)) == {"demo.step", "demo.cav"}


def test_another_model_adds_to_the_file_but_another_size_is_refused(path, ran):
    run_bench(Record(path, TRIAL, []), TRIAL, ["step"])
    other = replace(TRIAL, models=("vgg16",))
    run_bench(Record(path, other, []), other, ["step"])
    assert set(read_measures(path)) == {"demo.step", "vgg16.step"}
    with pytest.raises(RunError, match=r"\(turns differ\).*--out.*--again"):
        Record(path, replace(TRIAL, turns=5), [])
    assert Record(path, replace(TRIAL, turns=5), [], again=True).measures == []


def test_other_code_or_another_machine_cannot_go_on(path, ran, monkeypatch):
    run_bench(Record(path, TRIAL, []), TRIAL, ["step"])
    facts = {**Record(path, TRIAL, []).conditions["machine"], "code": "other", "cores": 1000}
    monkeypatch.setattr("benchmarks.speed.record.machine_facts", lambda: facts)
    with pytest.raises(RunError, match="code, cores differ"):
        Record(path, TRIAL, [])


@pytest.mark.parametrize("text", ["", "[]", '{"about": 3}', '{"x": 1}'])
def test_a_file_that_is_no_bench_is_told(path, text):
    path.write_text(text)
    with pytest.raises(RunError, match="cannot be read as the result of a bench"):
        Record(path, TRIAL, [])


def test_the_file_of_an_older_bench_is_told(path):
    path.write_text('{"demo.path_over_forward": 1.2, "about": {"torch": "2.4"}}')
    with pytest.raises(RunError, match="older bench"):
        Record(path, TRIAL, [])


def test_an_unknown_race_is_refused_before_anything_runs(path, ran):
    with pytest.raises(UnknownNameError, match=r"no race called 'flor'\. Did you mean 'floor'"):
        run_bench(Record(path, TRIAL, []), TRIAL, ["step", "flor"])
    assert ran == []
