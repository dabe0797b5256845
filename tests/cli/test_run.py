"""`hansfree init`, `check`, `run` and `suspects` as a user types them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import typer

from hansfree._internal.store import open_run
from hansfree.pipeline.checks import prepare_run
from hansfree.pipeline.config import read_run_file
from hansfree.pipeline.identity import run_config
from tests.conftest import Call
from tests.pipeline.user import CLASSES, read_table, write_run, write_table

INIT = ("init", "mine.yaml", "--model", "net.py:build", "--root", ".")
WEIGHTS = ("--weights", "two.safetensors")
TABLE = ("--table", "labels.csv")


@pytest.fixture
def user(user: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a user's folder."""
    monkeypatch.chdir(user)
    return user


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, str | list[str]]], list[str]]:
    """Answer questions by their first words, from a list one after the other; return the questions."""

    def answer(answers: Mapping[str, str | list[str]]) -> list[str]:
        questions: list[str] = []

        def prompt(question: str, **_: object) -> str:
            questions.append(question)
            found = next(text for start, text in answers.items() if question.startswith(start))
            return found if isinstance(found, str) else found.pop(0)

        monkeypatch.setattr("sys.stdin.isatty", lambda: True)
        monkeypatch.setattr(typer, "prompt", prompt)
        return questions

    return answer


@pytest.mark.parametrize(
    ("flags", "refused"),
    [
        (("--classes", "bright,shiny"), "not among the given classes"),
        (("--classes", ",".join([*CLASSES, "third"])), "3"),
        (("--biased-class", "drak"), "drak"),
        (("--layer", "foo"), "has no layer 'foo'"),
        (("--output", "label", "--label", "dark"), "model.label needs data.classes"),
    ],
)
def test_init_says_what_check_will_refuse(call: Call, user: Path, flags: tuple[str, ...], refused: str) -> None:
    code, out, _ = call(*INIT, *WEIGHTS, *TABLE, *flags)
    assert code == 0
    _, _, reason = " ".join(out.split()).partition("which `hansfree check` does not accept yet: ")
    assert refused in reason
    code, _, err = call("check", "mine.yaml")
    assert code != 0
    assert reason in " ".join(err.split())


def test_from_flags_to_a_report(call: Call, user: Path) -> None:
    classes = ("--classes", ", ".join(CLASSES), "--biased-class", "dark")
    code, out, err = call(*INIT, *WEIGHTS, *TABLE, *classes)
    assert (code, err) == (0, "")
    assert "Next: hansfree check mine.yaml" in out
    text = Path("mine.yaml").read_text()
    assert "size: 32 " in text, "that of the images, on which the model is better"
    Path("mine.yaml").write_text(text.replace("[vanilla, p-clarc, a-clarc, rr-clarc, match]", "[vanilla, rr-clarc]"))
    code, out, err = call("check", "mine.yaml")
    assert code == 0, err
    assert "All checks passed. Next: hansfree run mine.yaml" in out
    assert "biased class 'dark'" in " ".join(out.split())
    assert not Path("hansfree-run").exists()

    code, out, err = call("run", "mine.yaml")
    assert code == 0, err
    assert "accuracy  accuracy" in out
    assert any(word in out for word in ("Recommended: rr-clarc", "No model is recommended", "Do not use"))
    *_, report, following = out.splitlines()
    assert report == "report: hansfree-run/report.html"
    assert following in ("next: hansfree monitor hansfree-run IMAGES", "next: hansfree label mine.yaml")
    assert (user / "hansfree-run" / "report.html").stat().st_size > 10_000
    labels = [line.partition(":")[0] for line in err.splitlines()]
    assert len(labels) == len(set(labels)), "every line of progress says something of its own"
    assert sum(label.startswith("CAV diagnostics") for label in labels) == 1


def test_check_refuses_what_run_would(call: Call, user: Path) -> None:
    write_run(user / "mine.yaml")
    with open_run(user / "run", run_config(prepare_run(read_run_file(user / "mine.yaml")))):
        pass
    assert call("check", "mine.yaml")[0] == 0
    Path("images", "train-0-0-0.png").touch()
    for command in ("check", "run"):
        code, _, err = call(command, "mine.yaml")
        assert code == 1
        assert "holds another run (the images changed" in err


def test_classes_in_the_wrong_order_are_reported_before_a_run(call: Call, user: Path, unreported: None) -> None:
    write_run(user / "mine.yaml", data={"classes": list(reversed(CLASSES))}, artifact={"biased_class": "dark"})
    code, out, _ = call("check", "mine.yaml")
    assert code == 1  # `check && run` stops here
    assert "[dark, bright] would give" in out
    assert "Fix that first" in out
    assert "All checks passed" not in out
    _, out, _ = call("run", "mine.yaml")
    reported = out.index("[dark, bright] would give")
    assert reported < out.index("accuracy  accuracy"), "before long work"
    _, out, _ = call("run", "mine.yaml")
    assert "Fix that first" not in out, "reported at the start of the run, and again at its end"
    assert not Path("run", "exported").exists(), "nothing is recommended"


def test_init_reports_missing_files_and_writes_patch_and_preprocessing(call: Call, user: Path) -> None:
    patch = ("--insert", "patch", "--patch", "sticker.png", "--scale", "0.4")
    images = ("--size", "32", "--resize", "crop", "--mean", "0.5, 0.4,0.3", "--std", "0.1,0.2,0.3")
    code, out, _ = call(*INIT, *WEIGHTS, "--table", "label.csv", *patch, *images)
    assert code == 0
    assert "label.csv does not exist yet. Did you mean 'labels.csv'?" in out
    assert "sticker.png does not exist" not in out
    run = read_run_file(Path("mine.yaml"))
    assert run.artifact.scale == 0.4
    assert (run.data.size, run.data.resize, run.data.channels) == (32, "crop", 3)
    assert (run.data.mean, run.data.std) == ((0.5, 0.4, 0.3), (0.1, 0.2, 0.3))
    grey = ("--model", "net.py:grey", "--mean", "0.5", "--std", "0.2")
    code, _, err = call("init", "grey.yaml", "--root", ".", *TABLE, *grey)
    assert (code, err) == (0, "")
    data = read_run_file(Path("grey.yaml")).data
    assert (data.channels, data.mean, data.std) == (1, (0.5,), (0.2,))


@pytest.mark.parametrize(
    ("flags", "expected_code", "sentence"),
    [
        (("--resize", "sqush"), 1, "--resize is 'sqush'. Did you mean 'squash'? Allowed: 'squash', 'crop'."),
        (("--mean", "0.5"), 1, "Give --mean and --std together"),
        (("--mean", "0.5", "--std", "1,1,1"), 1, "Give --mean and --std together"),
        (("--mean", "1,1", "--std", "1,1"), 1, "Give --mean and --std together"),
        (("--mean", "5;5", "--std", "1"), 1, "--mean is '5;5'; expected numbers"),
        (("--mean", "0,0,0", "--std", "1,1,0"), 1, "--std is '1,1,0'; each number must be above 0"),
        (("--mean", "0", "--std", "inf"), 1, "--std is 'inf'; expected numbers"),
        (("--model", "ent.py:build"), 1, "There is no file ent.py. Did you mean 'net.py'?"),
        (("--weights", "tow.safetensors"), 1, "There is no file tow.safetensors. Did you mean 'two.safetensors'?"),
        (("--insert", "timestmp"), 2, "Did you mean 'timestamp'?"),
        (("--insert", "plaster"), 2, "cannot be inserted"),
        (("--scale", "0.4"), 2, "--scale needs a patch. Add --insert patch"),
        (("--insert", "lsb", "--patch", "sticker.png"), 2, "--patch needs a patch. Add --insert patch"),
        (("--table", "labels.csv", "--artifacts", "list.txt"), 2, "Leave out --artifacts"),
    ],
)
def test_init_refuses_invalid_flags_before_any_question(
    call: Call,
    user: Path,
    asked: Callable[..., list[str]],
    flags: tuple[str, ...],
    expected_code: int,
    sentence: str,
) -> None:
    questions = asked({"": ""})
    code, _, err = call(*INIT, *flags)
    assert code == expected_code
    assert sentence in " ".join(err.split())
    assert questions == []
    assert not Path("mine.yaml").exists()


def test_init_asks_what_the_flags_leave_open_again_after_a_wrong_answer(
    call: Call, user: Path, asked: Callable[..., list[str]]
) -> None:
    questions = asked(
        {
            "Model source": ["ent.py:build", "net.py:binary"],
            "Trained weights": ["tow.safetensors", "one.safetensors"],
            "Folder of the images": ["labels.csv", "imagse", "."],
            "CSV": ["label.csv", "images", "", "labels.csv"],
            "File that": "",
            "Artifact": ["timestmp", "lsb"],
            "Class names": "dark, bright",
            "Run directory": "later",
        }
    )
    code, out, err = call("init")
    assert (code, err) == (0, "")
    expected = "Model Model Trained Trained Folder Folder Folder CSV CSV CSV File Artifact Artifact Class Run"
    assert " ".join(question.split()[0] for question in questions) == expected
    for sentence in (
        "There is no file ent.py. Did you mean 'net.py'?",
        "There is no file tow.safetensors. Did you mean 'two.safetensors'?",
        "labels.csv is no folder.",
        "There is no folder imagse. Did you mean 'images'?",
        "There is no file label.csv. Did you mean 'labels.csv'?",
        "images is no file.",
        "timestmp cannot be inserted into images. Did you mean 'timestamp'?",
        "output is set to binary",
    ):
        assert sentence in out
    run = read_run_file(Path("hansfree.yaml"))
    assert (run.model.output, run.model.weights) == ("binary", str(user / "one.safetensors"))
    assert (run.data.root, run.data.table, run.artifact.insert) == (user, None, "lsb")
    assert (run.data.classes, run.out) == (("dark", "bright"), user / "later")

    questions.clear()
    assert call(*INIT, *WEIGHTS, "--classes", "dark,bright", "--out", "mine")[0] == 0
    assert [question.split()[0] for question in questions] == ["CSV"], "flags need no answer"


def test_init_without_a_terminal_names_the_missing_flag_and_never_overwrites_a_file(call: Call, user: Path) -> None:
    code, _, err = call("init", "--root", ".")
    assert code == 2
    assert "pass --model" in err
    code, _, err = call("init", "--model", "net.py:build", "--root", ".")
    assert code == 2
    assert "pass --insert" in err
    assert not Path("hansfree.yaml").exists()
    Path("hansfree.yaml").write_text("mine")
    sentence = "Error: hansfree.yaml exists already. Choose another name, or pass --force to replace it.\n"
    assert call("init") == (1, "", sentence)
    assert Path("hansfree.yaml").read_text() == "mine"


def test_errors_of_a_run_file_are_one_sentence(call: Call, user: Path) -> None:
    write_run(user / "run.yaml", model={"layer": "22"})
    for command in ("check", "run"):
        code, out, err = call(command, "run.yaml")
        assert (code, out) == (1, "")
        assert "Sequential has no layer '22'. Did you mean '2'?" in err
        assert "Traceback" not in err
    to_make = "To write a new one: hansfree init"
    for typed, hint in {
        "runn.yaml": f"There is no file runn.yaml. Did you mean 'run.yaml'? {to_make} runn.yaml",
        "run": f"There is no file run. Did you mean 'run.yaml'? {to_make} run",
        "nosuch.yaml": f"There is no file nosuch.yaml. {to_make} nosuch.yaml",
        "two": f"There is no file two. {to_make} two",  # weights are no run file
        "no such/my run.yml": f"There is no file no such/my run.yml. {to_make} 'no such/my run.yml'",
    }.items():
        assert call("check", typed) == (1, "", f"Error: {hint}\n")


def test_suspects_prints_what_is_anomalous_and_the_page(call: Call, user: Path) -> None:
    assert "Did you mean 'activations'?" in call("suspects", "nowhere.yaml", "--by", "activation")[2]
    rows = [(image, label, split) for image, label, _, split in read_table(user / "labels.csv")]
    write_table(user / "labels.csv", rows, ("image", "label", "split"))
    write_run(user / "run.yaml")
    code, out, _ = call("suspects", "run.yaml")
    assert code == 0
    assert "cluster 1: " in out
    assert "brightness: " in out
    assert f"page: {user / 'run-label' / 'suspects.html'}" in out
