"""The first run file: every key is in it, and it reads back what was answered."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import nn

from hansfree._internal.registry import Registered
from hansfree.cavs import CAV
from hansfree.cli.init import (
    Answers,
    inspect_model,
    write_run_file,
)
from hansfree.corrections import LatentCorrection
from hansfree.corrections.training import Optimizer
from hansfree.data.artifacts import Artifact
from hansfree.errors import RunError
from hansfree.pipeline.checks import DEFAULTS
from hansfree.pipeline.config import CorrectionSection, RunConfig, read_run_file
from tests.pipeline.user import build

NASTY = (
    "no",
    "null",
    "1e3",
    "1",
    "0x1f",
    "~",
    "a: b",
    "a #b",
    "'",
    '"',
    "\\n",
    "é",
    "雪",
    "[x]",
    "{x}",
    "- x",
    "&a",
    "%d",
)
NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12) | st.sampled_from(NASTY)
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("insert", [None, "timestamp"])
def test_every_key_of_the_schema_is_in_it(tmp_path: Path, insert: str | None) -> None:
    answers = Answers(source="demo", root=Path("images"), output="classes", insert=insert)
    write_run_file(tmp_path / "a.yaml", answers, DEFAULTS, every_key=True)
    text = (tmp_path / "a.yaml").read_text()
    sections = dict(zip(*[iter(re.split(r"^(\w+):\n", text, flags=re.MULTILINE)[1:])] * 2))
    for name, field in RunConfig.model_fields.items():
        kind = field.annotation
        if hasattr(kind, "model_fields"):
            told = set(re.findall(r"^  (?:# )?(\w+): ", sections[name], re.MULTILINE))
            assert set(kind.model_fields) <= told, name
        else:
            assert re.search(rf"^(# )?{name}: ", text, re.MULTILINE), name


@pytest.mark.parametrize("insert", [None, "timestamp"])
def test_every_choice_of_a_correction_is_named(tmp_path: Path, insert: str | None) -> None:
    answers = Answers(source="demo", root=Path("images"), output="classes", insert=insert)
    write_run_file(tmp_path / "a.yaml", answers, DEFAULTS, every_key=True)
    _, _, text = (tmp_path / "a.yaml").read_text().partition("\ncorrection:\n")
    named = set(re.findall(r"[\w-]+", text))
    assert {*LatentCorrection.members(), *CAV.members(), *get_args(Optimizer)} <= named


@pytest.mark.parametrize("insert", [None, "timestamp"])
@pytest.mark.parametrize(
    ("family", "like"),
    [
        (LatentCorrection, "leace"),
        (LatentCorrection, "rrr"),
        (LatentCorrection, "augmented"),
        (CAV, "ridge"),
        (CAV, "pair"),
        (Artifact, "lsb"),
    ],
)
def test_a_new_class_is_named_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: type[Registered], like: str, insert: str | None
) -> None:
    monkeypatch.setitem(family._members, "newcomer", family.named(like))
    write_run_file(
        tmp_path / "a.yaml", Answers(source="demo", root=Path("images"), insert=insert), DEFAULTS, every_key=True
    )
    told = [line for line in (tmp_path / "a.yaml").read_text().splitlines() if "newcomer" in line]
    assert told
    assert all("#" in line.partition("newcomer")[0] for line in told), "possible, and not proposed"


@pytest.mark.parametrize("insert", [None, "timestamp"])
def test_the_default_file_is_short_and_says_the_same_as_the_whole_one(tmp_path: Path, insert: str | None) -> None:
    answers = Answers(source="demo", root=Path("images"), output="classes", insert=insert, classes=["a", "b"])
    for every_key in (False, True):
        write_run_file(tmp_path / f"{every_key}.yaml", answers, DEFAULTS, every_key=every_key)
    assert len((tmp_path / "False.yaml").read_text().splitlines()) <= 36
    assert read_run_file(tmp_path / "False.yaml") == read_run_file(tmp_path / "True.yaml")


def words_of(kind: Any) -> set[str]:
    """Return the words that a type allows, also those of types in it."""
    words = get_args(kind)
    if get_origin(kind) is Literal:
        return {word for word in words if isinstance(word, str)}
    return set().union(*map(words_of, words))


def test_every_closed_choice_is_named(tmp_path: Path) -> None:
    write_run_file(tmp_path / "a.yaml", Answers(source="demo", root=Path("images")), DEFAULTS, every_key=True)
    named = set(re.findall(r"[\w-]+", (tmp_path / "a.yaml").read_text()))
    sections = [field.annotation for field in RunConfig.model_fields.values()]
    keys = [key for each in sections if hasattr(each, "model_fields") for key in each.model_fields.values()]
    choices = set().union(*(words_of(key.annotation) for key in keys))
    assert {"knee", "squash", "edges", "binary", "adam"} <= choices
    assert choices <= named


def test_where_the_artifact_can_be_put_in_the_file_says_what_won(tmp_path: Path) -> None:
    """Pairs, augmentation among the methods, solved heads and balanced classes; all else as without."""
    for insert in (None, "lsb"):
        answers = Answers(source="demo", root=Path("images"), output="classes", insert=insert)
        write_run_file(tmp_path / f"{insert}.yaml", answers, DEFAULTS)
    marked, put_in = (read_run_file(tmp_path / f"{insert}.yaml").correction for insert in (None, "lsb"))
    assert marked == CorrectionSection()
    won = {"cav": "pair", "train": "last", "optimizer": "converged", "balanced": True}
    assert put_in == marked.model_copy(update={**won, "methods": ("vanilla", "rr-clarc", "logit-pairing")})


def test_paths_on_another_drive_are_written_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other_drive(path: str, start: object) -> str:
        raise ValueError("path is on mount 'D:', start on mount 'C:'")

    monkeypatch.setattr("os.path.relpath", other_drive)
    answers = Answers(source="net.py:build", root=Path("images"), output="classes")
    write_run_file(tmp_path / "a.yaml", answers, DEFAULTS)
    run = read_run_file(tmp_path / "a.yaml")
    assert run.data.root == Path.cwd() / "images"
    assert run.model.source == f"{Path.cwd() / 'net.py'}:build"


def test_commented_lines_show_the_defaults(tmp_path: Path) -> None:
    """Taking away the `# ` before a default changes nothing."""
    path = tmp_path / "a.yaml"
    write_run_file(path, Answers(source="demo", root=Path("images"), output="classes"), DEFAULTS, every_key=True)
    before = read_run_file(path)
    shown = (
        "shares?|skip_bad|column|place|scale|angle|cav|train|optimizer|learning_rate|epochs|batch_size|budget|repeats"
    )
    text, count = re.subn(rf"^(  )?# ({shown}|seed|device|workers): ", r"\1\2: ", path.read_text(), flags=re.MULTILINE)
    assert count == 18
    path.write_text(text)
    assert read_run_file(path) == before


@QUICK
@given(names=st.lists(NAMES, min_size=2, max_size=4, unique=True), source=NAMES, label=NAMES)
@example(names=list(NASTY), source="file.py:build", label="no")
def test_whatever_was_answered_is_read_back(tmp_path: Path, names: list[str], source: str, label: str) -> None:
    path = tmp_path / "a.yaml"
    folder = Path("/", names[0].replace("/", "_"))
    answers = Answers(
        source=f"package.module:{source}",
        root=folder,
        weights=str(folder / "x.pt"),
        output="label",
        label=label,
        layer=names[-1],
        table=folder / "a, b.csv",
        classes=names,
        biased_class=names[-1],
        insert="patch",
        file=folder / "%s.png",
        out=folder / "out",
    )
    write_run_file(path, answers, DEFAULTS, force=True)
    run = read_run_file(path)
    assert run.data.classes == tuple(names)
    assert (run.model.label, run.model.layer, run.artifact.biased_class) == (label, names[-1], names[-1])
    assert run.model.source == f"package.module:{source}"
    assert (run.data.root, run.data.table, run.artifact.file) == (folder, folder / "a, b.csv", folder / "%s.png")
    assert (run.model.weights, run.out) == (str(folder / "x.pt"), folder / "out")


def test_plain_words_have_no_quotes(tmp_path: Path) -> None:
    answers = Answers(source="timm:resnet18.a1_in1k", root=Path("my/images"), output="classes", classes=["a", "no"])
    write_run_file(tmp_path / "a.yaml", answers, DEFAULTS)
    text = (tmp_path / "a.yaml").read_text()
    assert "source: timm:resnet18.a1_in1k\n" in text
    assert 'classes: [a, "no"]' in text


def test_typed_paths_lead_to_the_same_files_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answers = Answers(
        source="models/net.py:build", root=Path("images"), weights="w.pt", table=Path("/abs/t.csv"), output="classes"
    )
    for place in ("a.yaml", "runs/deep/a.yaml"):
        write_run_file(Path(place), answers, DEFAULTS)
        run = read_run_file(Path(place))
        assert run.data.root.resolve() == tmp_path / "images"
        assert Path(str(run.model.weights)).resolve() == tmp_path / "w.pt"
        assert Path(run.model.source.rpartition(":")[0]).resolve() == tmp_path / "models" / "net.py"
        assert run.data.table == Path("/abs/t.csv")
        assert run.out.resolve() == (tmp_path / place).parent / "hansfree-run"
    assert "root: images\n" in Path("a.yaml").read_text()
    assert "root: ../../images\n" in Path("runs/deep/a.yaml").read_text()


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("mine")
    answers = Answers(source="demo", root=tmp_path, output="classes")
    with pytest.raises(RunError, match="exists already"):
        write_run_file(path, answers, DEFAULTS)
    assert path.read_text() == "mine"
    write_run_file(path, answers, DEFAULTS, force=True)
    assert read_run_file(path).model.source == "demo"


@pytest.mark.parametrize(
    ("model", "output", "channels"),
    [(build(2), "classes", 3), (build(1), "binary", 3), (build(1, channels=1), "binary", 1)],
)
def test_one_logit_and_grey_images_are_seen(model: nn.Module, output: str, channels: int) -> None:
    seen = inspect_model(model.eval(), Answers(source="file.py:f", root=Path()))
    assert (seen.answers.output, seen.preprocessing.channels) == (output, channels)
    assert len(seen.preprocessing.mean) == channels
    assert bool(seen.sentences) == (output == "binary")


def test_what_was_said_of_the_output_stays() -> None:
    seen = inspect_model(build(2).eval(), Answers(source="file.py:f", root=Path(), output="label", label="x"))
    assert (seen.answers.output, seen.sentences) == ("label", ())


def test_a_model_that_takes_no_such_image_is_told_and_the_file_still_written() -> None:
    class Fussy(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            raise ValueError("only 17 channels")

    seen = inspect_model(Fussy(), Answers(source="file.py:f", root=Path()))
    assert seen.answers.output == "classes"
    assert "Set size and channels" in seen.sentences[0]
    assert "only 17 channels" in seen.sentences[0]
