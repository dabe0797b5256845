"""The command line: errors, the paper's experiments, and a whole demo that is stopped and resumed."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from PIL import Image
from safetensors.torch import load_file
from typer.main import get_command

from hansfree import cli
from hansfree.cavs import CAV
from hansfree.cli.terminal import ARTIFACTS, INSERTABLE
from hansfree.corrections import LatentCorrection
from hansfree.data import Artifact
from hansfree.demo import Demo
from hansfree.evaluation.results import load_results, method_title
from hansfree.metrics import Metric
from hansfree.models import ARCHITECTURES, build_model
from hansfree.report import summarize
from hansfree_paper import subjects
from hansfree_paper.dataset import BenchmarkDataset
from hansfree_paper.embedded import Synthetic
from hansfree_paper.runner import Reproduction
from hansfree_paper_cli import MODELS, initial_weights, train
from tests.conftest import Call

SCRIPT = Path(sys.executable).with_name("hansfree")
DEMO = ("demo", "--quick", "--size", "32")
COLUMNS = "experiment,method,cav,target,norm,strength,chosen,seed,epoch,split,artifact,group,metric,value,stderr,n"
SIGNED = {"probability_change", "alignment_sample", "alignment_mean"}  # in [-1, 1]; tcav_sensitivity has no bound


class Finished(NamedTuple):
    """A whole demo."""

    folder: Path
    out: str
    err: str
    table: list[dict[str, str]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """Yield a demo of few images, run once in a terminal of 80 columns; later demos are as small."""
    folder = tmp_path_factory.mktemp("demo") / "run"
    few = {"n_train": 1300, "n_val": 200, "n_test": 200, "epochs": 6, "correction_epochs": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Demo, "quick", lambda **options: Demo(**few, **options))
        patch.setattr(sys, "argv", ["hansfree", *DEMO, "--out", str(folder)])
        patch.setattr("hansfree.cli.terminal.console.width", 80, raising=False)
        with (
            redirect_stdout(io.StringIO()) as out,
            redirect_stderr(io.StringIO()) as err,
            pytest.raises(SystemExit) as end,
        ):
            cli.main()
        assert end.value.code == 0, err.getvalue()
        text = (folder / "results.csv").read_text(encoding="utf-8")
        assert text.splitlines()[0] == COLUMNS
        yield Finished(folder, out.getvalue(), err.getvalue(), list(csv.DictReader(text.splitlines())))


def test_help_names_every_command(call: Call) -> None:
    code, out, _ = call("--help")
    assert code == 0
    for command in cli.app.registered_commands:
        assert command.callback is not None
        assert re.search(rf"^\s+{command.callback.__name__}\s", out, re.MULTILINE)
    for program in ([SCRIPT], [sys.executable, "-m", "hansfree"]):
        done = subprocess.run([*program, "--version"], capture_output=True, text=True)
        assert done.stdout == f"hansfree {version('hansfree')}\n"


def test_the_written_names_are_the_registered_ones() -> None:
    assert tuple(ARCHITECTURES) == MODELS
    assert tuple(name for name, kind in Artifact.members().items() if not kind.needs_file) == ARTIFACTS
    assert tuple(Artifact.for_images()) == INSERTABLE


def test_the_help_of_every_command_needs_nothing_heavy() -> None:
    commands = ("", *get_command(cli.app).commands)  # type: ignore[attr-defined]
    code = f"""
import sys
from hansfree.cli import app

for command in {commands!r}:
    app([*filter(None, [command]), "--help"], standalone_mode=False)
print([name for name in ("torch", "sklearn", "scipy", "matplotlib") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\n[]\n")


@pytest.mark.parametrize(
    ("words", "expected", "sentence"),
    [
        (("demo", "--artifact", "timestmp"), 1, "Did you mean 'timestamp'?"),
        (("demo", "--artifact", "patch"), 1, "Known: timestamp, brightness, lsb, plaster."),
        (("demo", "--model", "resnet81"), 1, "Did you mean 'resnet18'?"),
        (("demo", "--size", "8"), 1, "at least 32"),
        (("demo", "--seed", "-1"), 1, "at least 0"),
        (("report", "nowhere"), 1, "There is no run folder nowhere."),
        (("export", "nowhere"), 1, "There is no run folder nowhere."),
        ((), 2, "Usage"),
        (("dmo",), 2, "dmo"),
        (("demo", "--size", "large"), 2, "valid integer"),
        (("demo", "--colour", "red"), 2, "--colour"),
        (("layers", "demo", "--size", "8"), 2, "--size"),
    ],
)
def test_invalid_requests_are_one_sentence_and_write_nothing(
    words: tuple[str, ...], expected: int, sentence: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(*words)
    assert code == expected
    assert sentence in out + err
    assert "Traceback" not in err
    if code == 1:
        assert out == ""
        assert err.startswith("Error: ")
        assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_another_demo_gets_another_folder(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = []

    def remember(_: object, folder: Path, **__: object) -> SimpleNamespace:
        folders.append(str(folder))
        return SimpleNamespace(sentences=(), directory=folder)

    monkeypatch.setattr("hansfree.demo.Demo.run", remember)
    monkeypatch.setattr("hansfree.cli.run._show_result", lambda done, **_: print(f"shown: {done.directory}"))
    for words in ([], ["--quick"], ["--artifact", "lsb", "--seed", "1"], ["--out", "mine"]):
        code, out, _ = call("demo", *words)
        assert code == 0
        assert out == f"shown: {folders[-1]}\n"
    assert folders == ["hansfree-demo", "hansfree-demo-quick", "hansfree-demo-artifact-lsb-seed-1", "mine"]


# The paper's experiments


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make the embedded suite tiny, and work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    for name, count in (("n_base", 320), ("n_train", 160), ("n_val", 104), ("n_test", 64), ("default_size", 32)):
        monkeypatch.setattr(Synthetic, name, count)
    return tmp_path


def test_without_a_name_experiments_and_datasets_are_listed(call: Call) -> None:
    code, out, _ = call("reproduce")
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines() if line[:1].strip()}
    assert set(Reproduction.members()) <= set(lines)
    for name, dataset in BenchmarkDataset.members().items():
        assert dataset.artifacts[0] in lines[name]
        assert ("needed" in lines[name]) == dataset.needs_root
        assert (f"{name} *" in lines[name]) == dataset.is_default


def test_a_model_without_pretrained_weights_starts_from_random_ones() -> None:
    paper = next(name for name, study in BenchmarkDataset.members().items() if study.published is not None)
    assert initial_weights(paper, "resnet18", None) == "pretrained"
    assert initial_weights(paper, "demo", None) is None
    assert initial_weights(None, "resnet18", None) is None
    assert initial_weights(paper, "resnet18", "random") is None


@pytest.mark.parametrize("command", [("train",), ("reproduce", "q1")])
def test_weights_are_checked_before_any_image(
    command: tuple[str, ...], call: Call, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Synthetic, "read", lambda _: pytest.fail("images were read first"))
    (tiny / "garbage.pt").write_bytes(b"no weights")
    for weights, sentence in (("garbage.pt", "'garbage.pt'"), ("pretrained", "use --weights random, or give a file")):
        code, _, err = call(*command, "--model", "demo", "--weights", weights)
        assert code == 1
        assert sentence in err


def test_train_records_what_it_left_out(call: Call, tiny: Path) -> None:
    rows = ["image,label,split"]
    for row in range(80):
        rows.append(f"{row}.png,{'ab'[row % 2]},{('train', 'train', 'val', 'test')[row // 2 % 4]}")
        Image.new("RGB", (32, 32), (row, 90, 60)).save(tiny / f"{row}.png")
    (tiny / "labels.csv").write_text("\n".join(rows))
    (tiny / "0.png").write_bytes(b"")
    words = ("train", "--data", "table", "--root", tiny, "--model", "demo", "--size", "32", "--epochs", "1")
    code, out, err = call(*words, "--skip-bad")
    assert code == 0, err
    assert "the artifact is inserted into 'a', the first in the alphabet" in out
    (record,) = (tiny / "hansfree-results" / "work" / "models").glob("*.skipped.txt")
    assert f"left out: 1 files, listed in {record.relative_to(tiny)}" in out
    assert record.with_name(record.name.replace(".skipped.txt", ".safetensors")).exists()
    assert str(tiny / "0.png") in record.read_text(encoding="utf-8")


def test_train_and_reproduce_use_the_same_model(call: Call, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--model", "demo", "--epochs", "1")
    code, out, _ = call("train", *words)
    assert code == 0
    model = tiny / out.removeprefix("model: ").strip()
    build_model("demo", classes=4).load_state_dict(load_file(model), strict=True)
    assert call("train", *words)[:2] == (0, out)

    trained = []
    genuine = subjects.pretrain

    def remember(*arguments: Any, **options: Any) -> None:
        trained.append(options["label"])
        genuine(*arguments, **options)

    monkeypatch.setattr(subjects, "pretrain", remember)
    words = ("reproduce", "table1", *words, "--correction-epochs", "1")
    for name in LatentCorrection.defaults():
        words += () if name in ("vanilla", "rr-clarc") else ("--leave-out", name)
    words = (*words, "--strengths", "rr-clarc=0.1,10", "--repeats", "2")
    code, out, _ = call(*words, "--artifact", "timestamp", "--artifact", "lsb")
    assert code == 0
    assert trained == ["train clean reference"], "the biased model was there, and the reference serves both artifacts"
    page = tiny / out.removeprefix("results: ").strip()
    assert page.name == "synthetic-table1.md"
    assert page.is_relative_to(tiny / "hansfree-results")
    assert f"hansfree {' '.join(words)} --artifact timestamp --artifact lsb" in page.read_text(encoding="utf-8")
    rows = list(csv.DictReader(page.with_suffix(".csv").read_text(encoding="utf-8").splitlines()))
    assert {row["experiment"] for row in rows} == {"synthetic-timestamp-demo", "synthetic-lsb-demo"}
    assert {row["strength"] for row in rows if row["method"] == "rr-clarc"} == {"0.1", "10"}
    assert {row["seed"] for row in rows if row["method"] == "vanilla"} == {"0", "1"}
    assert "rrr" not in {row["method"] for row in rows}


def test_all_artifacts_and_models_run_in_turn(call: Call, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def remember(name: str, subjects: Any, **options: Any) -> Path:
        seen.append((name, [(study.artifact, study.size, plan) for study, plan in subjects], options))
        return options["out"] / "README.md"

    monkeypatch.setattr("hansfree_paper.runner.reproduce", remember)
    words = ["--model", "all", "--artifact", "all", "--size", "64", "--size", "96", "--size", "32", "--epochs", "3"]
    words += ["--leave-out", "vgg16:rrr", "--leave-out", "a-clarc", "--out", "there"]
    assert call("reproduce", "q1", *words)[0] == 0
    ((name, subjects, options),) = seen
    assert name == "q1"
    assert [artifact for artifact, _, _ in subjects] == list(Synthetic.artifacts) * 3
    assert [(plan.model, size) for _, size, plan in subjects[::4]] == [
        ("vgg16", 64), ("resnet18", 96), ("efficientnet_b0", 32)
    ]  # fmt: skip
    assert {plan.epochs for _, _, plan in subjects} == {3}
    left_out = {plan.model: plan.left_out for _, _, plan in subjects}
    assert left_out == {"vgg16": ("rrr", "a-clarc"), "resnet18": ("a-clarc",), "efficientnet_b0": ("a-clarc",)}
    assert (options["out"], options["work"]) == (Path("there"), Path("there/work"))

    assert call("reproduce", "q1")[0] == 0
    default = signature(train).parameters["model"].default
    assert [(artifact, plan.model) for artifact, _, plan in seen[1][1]] == [(Synthetic.artifacts[0], default)]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("reproduce", "table"), "Did you mean 'table1'?"),
        (("reproduce", "q1", "--artifact", "timestmp"), "Did you mean 'timestamp'?"),
        (("reproduce", "q1", "--grid", "papr"), "--grid is 'papr'. Did you mean 'paper'?"),
        (("reproduce", "q1", "--corrected", "lst"), "--corrected is 'lst'. Did you mean 'last'?"),
        (("reproduce", "q1", "--train", "headd"), "--train is 'headd'. Did you mean 'head'?"),
        (("reproduce", "q1", "--strengths", "rr-clarc=much"), "expected METHOD=0.1,1,10"),
        (("reproduce", "q1", "--strengths", "rr-clrc=1"), "Did you mean 'rr-clarc'?"),
        (("reproduce", "q1", "--strengths", "vanilla=1"), "has no strength"),
        (("reproduce", "q1", "--leave-out", "rr"), "There is no method called 'rr'. Did you mean 'rrr'?"),
        (("reproduce", "q1", "--leave-out", "vgg61:rrr"), "Did you mean 'vgg16'?"),
        (("reproduce", "q1", "--size", "64", "--size", "32"), "Give --size once, or once for each of 1 models"),
        (("reproduce", "q1", "--train", "head"), "give --weights whose layers are trained"),
        (("reproduce", "q1", "--root", "."), "leave out --root"),
        (("reproduce", "q1", "--data", "isic2019"), "give --root"),
        (("reproduce", "q1", "--share", "0.5"), "has its own bias: leave out --share"),
        (("reproduce", "natural", "--model", "demo"), "does not say which test images carry an artifact by nature"),
        (("train", "--biased-class", "x"), "leave out --biased-class"),
    ],
)
def test_errors_of_experiments_are_one_sentence(words: tuple[str, ...], sentence: str, call: Call, tiny: Path) -> None:
    code, out, err = call(*words)
    assert (code, out) == (1, "")
    assert sentence in err
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("Error: ")
    assert not list(tiny.rglob("*.safetensors"))


# One whole demo


def test_the_run_folder_and_its_corrected_weights_are_complete(finished: Finished) -> None:
    folder, table = finished.folder, finished.table
    files = ("cavs.safetensors", "diagnostics.json", "results.csv", "results.json", "report.html", "log.jsonl")
    for name in ("config.yaml", *files):
        assert (folder / name).stat().st_size > 0, name
    assert list((folder / "activations").rglob("shard-*.safetensors"))
    assert list((folder / "figures").glob("*.svg"))
    chosen = {row["method"] for row in table if row["chosen"] == "1"} & {*LatentCorrection.members(), "match"}
    assert {path.stem for path in (folder / "corrected").glob("*.safetensors")} == chosen
    assert chosen >= {"vanilla", "p-clarc", "a-clarc"}  # they have no strength that could be rejected
    original = load_file(folder / "model.safetensors")
    for path in sorted((folder / "corrected").glob("*.safetensors")):
        if path.stem == "match":  # of the whole network
            continue
        state = load_file(path)
        own = {name: value for name, value in state.items() if not name.startswith("hansfree_projection.")}
        build_model("demo", classes=4).load_state_dict(own, strict=True)
        assert (len(own) < len(state)) == (path.stem == "p-clarc")
        changed = {name for name in own if not own[name].equal(original[name])}
        assert changed == {"classifier.weight", "classifier.bias"}, path.stem


def test_results_are_sane_and_unique_and_one_strength_is_chosen(finished: Finished) -> None:
    table = finished.table
    qualities = {"alignment_sample", "alignment_mean", "cav_auc"}
    methods = {"original", "clean-trained", *LatentCorrection.defaults(), "match"}
    assert {row["method"] for row in table} == methods | {f"cav:{name}" for name in CAV.from_marks()}
    assert {row["metric"] for row in table} == {*Metric.members(), *qualities}
    assert {(row["experiment"], row["seed"]) for row in table} == {("demo-timestamp", "0")}
    for row in table:
        value, stderr = float(row["value"]), float(row["stderr"])
        assert (-1 if row["metric"] in SIGNED else 0) <= value, row
        assert value <= 1 or row["metric"] == "tcav_sensitivity", row
        assert stderr >= 0, row
        assert int(row["n"]) > 0, row
        assert row["split"] == ("val" if row["epoch"] else "test"), row
    summary = json.loads((finished.folder / "results.json").read_text(encoding="utf-8"))
    assert len(summary["scores"]) == len(table)
    key = ("method", "strength", "epoch", "split", "group", "metric")
    assert max(Counter(tuple(row[name] for name in key) for row in table).values()) == 1
    for name in LatentCorrection.defaults():
        info = LatentCorrection.named(name).info
        tried = {row["strength"] for row in table if row["method"] == name}
        chosen = {row["strength"] for row in table if row["method"] == name and row["chosen"] == "1"}
        assert len(tried) == (len(info.strengths) if info.has_strength else 1)
        assert len(chosen) <= 1
    scores = {row["metric"]: float(row["value"]) for row in table if row["method"] == "original"}
    assert scores["accuracy_clean"] - scores["accuracy_biased"] > 0.2  # the model uses the artifact


def test_the_terminal_shows_the_first_screen_of_the_report(finished: Finished) -> None:
    folder, table = finished.folder, finished.table
    results = load_results(folder)
    summary = summarize(results)
    *lines, report, last = finished.out.splitlines()
    assert (report, last) == (f"report: {folder / 'report.html'}", "next: hansfree init my.yaml")
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(f" {summary.badge.icon} {summary.badge.title}  {summary.subject}")
    first = next(place for place, line in enumerate(lines) if line.startswith("Original"))
    names = [line.split()[0] for line in lines[first : first + 8]]
    methods = [*LatentCorrection.defaults(), "match"]
    assert names == [method_title(name) for name in ("original", *methods, "clean-trained")]
    score = next(row for row in table if (row["method"], row["metric"]) == ("original", "flip_rate"))
    assert f"{100 * float(score['value']):.1f}" in lines[first].split()
    page = (folder / "report.html").read_text(encoding="utf-8")
    for tile in summary.tiles:
        for number in (tile.before, tile.after):
            assert f"<strong>{number.value}</strong>" in page
            assert number.value in finished.out
    bars = re.findall(r"(\d+)/(\d+)", finished.err)
    assert bars
    assert all(at == total for at, total in bars)


def test_a_stopped_run_resumes_to_the_same_results(finished: Finished, call: Call, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished.folder, tmp_path / "run"))
    lost = [*(folder / "stages").glob("rr-clarc.*"), folder / "corrected" / "rr-clarc.safetensors"]
    before = {name: (folder / name).read_bytes() for name in ("results.csv", "config.yaml")}
    log = (folder / "log.jsonl").read_text().splitlines()
    for path in (*lost, folder / "results.csv", folder / "results.json", folder / "report.html"):
        path.unlink()
    code, _, err = call(*DEMO, "--out", folder)
    assert code == 0, err
    assert {name: (folder / name).read_bytes() for name in before} == before
    *same, last = (folder / "log.jsonl").read_text().splitlines()
    assert (same, json.loads(last)["stage"]) == (log, "rr-clarc"), "no other stage was run again"
    code, _, err = call(*DEMO, "--seed", "1", "--out", folder)
    assert code == 1
    assert "holds another run (seed was 0, is now 1)" in err
    assert (folder / "results.csv").read_bytes() == before["results.csv"]
    page = folder / "report.html"
    tables = page.read_text(encoding="utf-8").count("<table")
    page.unlink()
    assert call("report", folder)[:2] == (0, f"report: {page}\n")
    assert page.read_text(encoding="utf-8").count("<table") == tables
