"""The run file of `hansfree init`: every key is in it, and all answers are read back."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import nn

from hansfree.cavs import CAV
from hansfree.cli.init import Answers, inspect_model, measure_preprocessing, write_run_file
from hansfree.corrections import LatentCorrection
from hansfree.corrections.training import Optimizer
from hansfree.pipeline.checks import DEFAULTS
from hansfree.pipeline.config import CorrectionSection, RunConfig, read_run_file
from tests.pipeline.user import build

NASTY = (
    *("no", "null", "1e3", "1", "0x1f", "~", "a: b", "a #b", "'", '"', "\\n", "é", "雪"),
    *("[x]", "{x}", "- x", "&a", "%d"),
)
NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12) | st.sampled_from(NASTY)
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


INSERTS = pytest.mark.parametrize("insert", [None, "timestamp"])


def written(path: Path, *, every_key: bool = True, **answers: Any) -> str:
    """Write a run file for these answers; return its text."""
    given = {"source": "demo", "root": Path("images"), "output": "classes", **answers}
    write_run_file(path, Answers(**given), DEFAULTS, every_key=every_key)
    return path.read_text()


def words_of(kind: Any) -> set[str]:
    """Return the words that a type allows, also those of types in it."""
    words = get_args(kind)
    if get_origin(kind) is Literal:
        return {word for word in words if isinstance(word, str)}
    return set().union(*map(words_of, words))


@INSERTS
def test_every_key_and_every_choice_is_in_the_whole_file(tmp_path: Path, insert: str | None) -> None:
    text = written(tmp_path / "a.yaml", insert=insert)
    sections = dict(zip(*[iter(re.split(r"^(\w+):\n", text, flags=re.MULTILINE)[1:])] * 2))
    choices = {*LatentCorrection.members(), *CAV.members(), *get_args(Optimizer)}
    for name, field in RunConfig.model_fields.items():
        kind = field.annotation
        if hasattr(kind, "model_fields"):
            assert set(kind.model_fields) <= set(re.findall(r"^  (?:# )?(\w+): ", sections[name], re.MULTILINE)), name
            choices |= set().union(*(words_of(key.annotation) for key in kind.model_fields.values()))
        else:
            assert re.search(rf"^(# )?{name}: ", text, re.MULTILINE), name
    assert {"knee", "squash", "edges", "binary", "adam"} <= choices
    assert choices <= set(re.findall(r"[\w-]+", text))


@INSERTS
def test_the_default_file_is_short_and_says_the_same_as_the_whole_one(tmp_path: Path, insert: str | None) -> None:
    answers: dict[str, Any] = {"insert": insert, "classes": ["a", "no"], "source": "timm:resnet18.a1_in1k"}
    short = written(tmp_path / "short.yaml", every_key=False, **answers)
    written(tmp_path / "whole.yaml", **answers)
    assert "source: timm:resnet18.a1_in1k\n" in short, "plain words have no quotes"
    assert 'classes: [a, "no"]' in short
    assert len(short.splitlines()) <= 36
    assert read_run_file(tmp_path / "short.yaml") == read_run_file(tmp_path / "whole.yaml")


def test_with_an_inserted_artifact_the_file_has_the_best_settings(tmp_path: Path) -> None:
    for insert in (None, "lsb"):
        written(tmp_path / f"{insert}.yaml", every_key=False, insert=insert)
        for every_key in (False, True):  # one label of many: no method of the whole network
            label = {"output": "label", "label": "a", "classes": ["a", "b"], "insert": insert}
            written(tmp_path / "label.yaml", every_key=every_key, **label)
            assert "match" not in read_run_file(tmp_path / "label.yaml").correction.methods
    default, inserted = (read_run_file(tmp_path / f"{insert}.yaml").correction for insert in (None, "lsb"))
    assert default == CorrectionSection()
    best = {"cav": "pair", "train": "last", "optimizer": "converged", "balanced": True}
    methods = ("vanilla", "rr-clarc", "logit-pairing", "match")
    assert inserted == default.model_copy(update={**best, "methods": methods})


def test_commented_lines_show_the_defaults(tmp_path: Path) -> None:
    """Uncommenting a default changes nothing."""
    path = tmp_path / "a.yaml"
    text = written(path)
    before = read_run_file(path)
    shown = (
        "shares?|skip_bad|column|place|scale|angle|cav|train|optimizer|learning_rate|epochs|batch_size|budget|repeats"
    )
    text, count = re.subn(rf"^(  )?# ({shown}|seed|device|workers): ", r"\1\2: ", text, flags=re.MULTILINE)
    assert count == 18
    path.write_text(text)
    assert read_run_file(path) == before


@QUICK
@given(names=st.lists(NAMES, min_size=2, max_size=4, unique=True), source=NAMES, label=NAMES)
@example(names=list(NASTY), source="file.py:build", label="no")
def test_all_answers_are_read_back(tmp_path: Path, names: list[str], source: str, label: str) -> None:
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
    write_run_file(path, answers, DEFAULTS)
    run = read_run_file(path)
    assert run.data.classes == tuple(names)
    assert (run.model.label, run.model.layer, run.artifact.biased_class) == (label, names[-1], names[-1])
    assert run.model.source == f"package.module:{source}"
    assert (run.data.root, run.data.table, run.artifact.file) == (folder, folder / "a, b.csv", folder / "%s.png")
    assert (run.model.weights, run.out) == (str(folder / "x.pt"), folder / "out")


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


def test_paths_on_another_drive_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other_drive(path: str, start: object) -> str:
        raise ValueError("path is on mount 'D:', start on mount 'C:'")

    monkeypatch.setattr("os.path.relpath", other_drive)
    written(tmp_path / "a.yaml", source="net.py:build")
    run = read_run_file(tmp_path / "a.yaml")
    assert run.data.root == Path.cwd() / "images"
    assert run.model.source == f"{Path.cwd() / 'net.py'}:build"


@pytest.mark.parametrize(
    ("model", "output", "channels"),
    [(build(2), "classes", 3), (build(1), "binary", 3), (build(1, channels=1), "binary", 1)],
)
def test_one_logit_and_grey_images_are_found(model: nn.Module, output: str, channels: int) -> None:
    answers, preprocessing, note = inspect_model(model.eval(), Answers(source="file.py:f", root=Path()))
    assert (answers.output, preprocessing.channels) == (output, channels)
    assert len(preprocessing.mean) == channels
    assert bool(note) == (output == "binary")


def test_a_given_output_is_not_changed_and_a_failing_model_is_reported() -> None:
    given = Answers(source="file.py:f", root=Path(), output="label", label="x")
    answers, _, note = inspect_model(build(2).eval(), given)
    assert (answers.output, note) == ("label", "")

    class Fussy(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            raise ValueError("only 17 channels")

    answers, _, note = inspect_model(Fussy(), Answers(source="file.py:f", root=Path()))
    assert answers.output == "classes"
    assert note.startswith("Set size and channels")
    assert "only 17 channels" in note


class Edge(nn.Module):
    """It sees the brightness of one row of pixels."""

    def __init__(self, inset: int) -> None:
        super().__init__()
        self.inset = inset

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        row = images[:, :, self.inset].mean(dim=(1, 2))
        return torch.stack([-row, row], dim=1)


@pytest.mark.parametrize(
    ("inset", "stripe", "striped", "library", "expected", "is_clear"),
    [
        (0, slice(2), 40, "crop", "squash", True),  # the stripe lies outside the crop
        (3, slice(5, 7), 40, "squash", "crop", True),  # the crop moves the stripe to where the model looks
        (20, slice(40), 40, "crop", "squash", False),  # level, and the images have the model's size
        (0, slice(2), 2, "crop", "squash", False),  # a single image shows the stripe
    ],
)
def test_the_way_of_resizing_is_measured(
    tmp_path: Path, inset: int, stripe: slice, striped: int, library: str, expected: str, is_clear: bool
) -> None:
    rng = np.random.default_rng(0)
    for number in range(40):
        image = rng.integers(0, 100, size=(40, 40, 3), dtype=np.uint8)
        image[stripe] = 255 * (number % 2 and number < striped)
        (tmp_path / "ab"[number % 2]).mkdir(exist_ok=True)
        Image.fromarray(image).save(tmp_path / "ab"[number % 2] / f"{number}.png")
    answers = Answers(source="file.py:f", root=tmp_path, weights="model.pt", output="classes")
    seen = replace(DEFAULTS, size=40, resize=cast(Any, library))
    found, note = measure_preprocessing(Edge(inset).eval(), answers, seen)
    assert found == replace(seen, resize=expected)
    assert re.fullmatch(r"balanced accuracy on 40 images: 40 px squash .* %, 40 px crop .* %(, which is level)?", note)
    assert note.endswith("level") != is_clear
    text = written(tmp_path / "run.yaml", every_key=False)
    write_run_file(tmp_path / "run.yaml", answers, found, resize_note=note)
    assert (tmp_path / "run.yaml").read_text() != text
    assert note in (tmp_path / "run.yaml").read_text()
    chosen = replace(answers, resize="crop", size=40)
    for other in (chosen, replace(answers, weights=None), replace(answers, root=Path("no"))):
        assert measure_preprocessing(Edge(inset).eval(), other, seen) == (seen, "")


class Reversed(Edge):
    """Its outputs are in the other order."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward(images).flip(1)


@pytest.mark.parametrize("kind", [Edge, Reversed])
@pytest.mark.parametrize(("size", "expected"), [(None, 40), (80, 80)])
def test_images_of_one_size_are_tried_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: type[Edge], size: int | None, expected: int
) -> None:
    rng = np.random.default_rng(0)
    for number in range(40):
        image = rng.integers(0, 100, size=(40, 40, 3), dtype=np.uint8)
        image[8] = 255 * (number % 2)  # seen at 40 pixels only
        (tmp_path / "ab"[number % 2]).mkdir(exist_ok=True)
        Image.fromarray(image).save(tmp_path / "ab"[number % 2] / f"{number}.png")
    answers = Answers(source="file.py:f", root=tmp_path, weights="model.pt", output="classes", size=size)
    found, note = measure_preprocessing(kind(8).eval(), answers, replace(DEFAULTS, size=80))
    assert found.size == expected
    assert ("40 px squash 100.0 %" in note) == (size is None)
    is_found = kind is Reversed and size is None  # at 80 pixels the model is at chance level
    assert ("[b, a] would give 100.0 %" in capsys.readouterr().out) == is_found
