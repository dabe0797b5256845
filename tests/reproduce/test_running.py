"""Every experiment end to end on a tiny subject: a page, a table, its figures, and the same bytes again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hansfree.errors import DataError, OptionError, UnknownNameError
from hansfree.experiments.workspace import Plan
from hansfree.reproduce import Reproduction, reproduce
from hansfree.results import read_rows
from hansfree.studies import Published
from tests.experiments.examples import PLAN, Natural, Single, Untested

COMMAND = "hansfree reproduce something --data single"
PICTURES = {
    "overview": {"biases", "lsb"},
    "q1": {"alignment", "localisation", "extremes-lsb-demo"},
    "table1": {"scatter", "heatmap-panel"},
    "runtime": {"times"},
    "q3": {"class-specific"},
    "natural": set(),
    "ablation-cav": {"cav-types"},
    "ablation-strength": {"strength"},
    "ablation-epochs": {"epochs"},
    "ablation-target": {"targets"},
    "tournament": {"tournament"},
    "pairs": {"tournament"},
    "refit": {"tournament"},
}


def run(name: str, work: Path, out: Path) -> Path:
    plan = Plan(**PLAN)
    if name in ("tournament", "pairs", "refit"):  # where all play with their own strengths
        plan = replace(plan, strengths={})
    return reproduce(name, [(Single(artifact="lsb"), plan)], out=out, work=work, command=COMMAND)


@pytest.mark.parametrize("name", list(Reproduction.members()))
def test_it_writes_page_table_and_figures_and_the_same_again(
    name: str, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = run(name, work, tmp_path)
    folder = tmp_path / "single" / name
    assert page == folder / "README.md"
    drawn = {path.stem for path in folder.glob("*.png")}
    assert drawn == PICTURES[name]
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {Reproduction.named(name).title}\n")
    assert f"```bash\n{COMMAND}\n```" in text
    assert "## Setting\n\n- model: demo\n- artifact: lsb\n- dataset: Single shortcut, 32 px, seed 0\n" in text
    assert ("- layer:" in text) == (name != "overview")
    assert ("- corrections fine-tune:" in text) == (name not in ("overview", "q1"))
    assert ("- strengths:" in text) == (name not in ("overview", "q1", "runtime"))
    assert set(re.findall(r"\]\((.+?)\.png\)", text)) == drawn
    assert not re.search(r"\bnan\b|\bNone\b", text)
    rows = read_rows(folder / "results.csv")
    assert bool(rows) == (name != "overview")
    assert {row.experiment for row in rows} <= {"single-lsb-demo"}
    assert not (folder / "skipped.txt").exists()

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("what is done is done again")

    before = {path.name: path.read_bytes() for path in (folder / "results.csv", page)}
    for where in ("corrections.base.train_heads", "experiments.subjects.pretrain"):
        monkeypatch.setattr(f"hansfree.{where}", fail)
    run(name, work, tmp_path)
    assert {name: (folder / name).read_bytes() for name in before} == before


def test_all_subjects_stand_on_one_page_and_in_one_table(work: Path, tmp_path: Path) -> None:
    subjects = [(Single(artifact=artifact), Plan(**PLAN)) for artifact in ("lsb", "brightness")]
    page = reproduce("q1", subjects, out=tmp_path, work=work)
    names = {row.experiment for row in read_rows(page.with_name("results.csv"))}
    assert names == {"single-lsb-demo", "single-brightness-demo"}
    for artifact in ("lsb", "brightness"):
        assert f"demo · {artifact} · single" in page.read_text(encoding="utf-8")
        assert (page.parent / f"extremes-{artifact}-demo.png").exists()


@pytest.mark.parametrize("name", ["overview", "q1", "table1", "ablation-strength"])
def test_a_bias_that_is_in_the_scenes_can_be_shown_too(name: str, work: Path, tmp_path: Path) -> None:
    page = reproduce(name, [(Natural(), Plan(**PLAN))], out=tmp_path, work=work)
    text = page.read_text(encoding="utf-8")
    assert "natural" in text or name == "overview"
    assert not re.search(r"\bnan\b|\bNone\b", text)
    assert not {"flip_rate", "alignment_mean"} & {row.metric for row in read_rows(page.with_name("results.csv"))}
    assert not list(page.parent.glob("extremes*")), "there is no change to be aligned with"


@pytest.mark.parametrize("name", ["table1", "ablation-strength"])
def test_a_bias_that_no_test_image_has_is_said_to_be_unknown(name: str, work: Path, tmp_path: Path) -> None:
    page = reproduce(name, [(Untested(), Plan(**PLAN))], out=tmp_path, work=work)
    text = page.read_text(encoding="utf-8")
    assert "\n- cannot be known: No test image has the artifact. At least 25 in each of two classes are needed" in text
    assert not re.search(r"\bnan\b|\bNone\b", text)
    rows = read_rows(page.with_name("results.csv"))
    assert "accuracy_clean" in {row.metric for row in rows}
    assert "accuracy_biased" not in {row.metric for row in rows}
    assert not list(page.parent.glob("*.png"))


def test_heatmaps_are_drawn_of_the_subjects_that_have_images(work: Path, tmp_path: Path) -> None:
    subjects = [(study, Plan(**PLAN)) for study in (Natural(), Untested())]
    for name, drawn in (("table1", {"scatter", "heatmap-panel"}), ("ablation-strength", {"strength"})):
        page = reproduce(name, subjects, out=tmp_path, work=work)
        assert {path.stem for path in page.parent.glob("*.png")} == drawn


@pytest.mark.parametrize("name", ["overview", "q1"])
def test_what_only_looks_at_images_with_the_artifact_refuses_a_bias_that_none_has(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"No test image of Natural shortcut carries the artifact 'plaster', and this"):
        reproduce(name, [(Untested(), Plan(**PLAN))], out=tmp_path, work=tmp_path / "work")
    assert not (tmp_path / "work").exists()


def test_images_that_were_left_out_are_counted_once(work: Path, tmp_path: Path) -> None:
    subjects = []
    for artifact in ("lsb", "brightness"):
        study = Single(artifact=artifact)
        study.skipped = ["a.png is broken.", "b.png is missing."]
        subjects.append((study, Plan(**PLAN)))
    page = reproduce("overview", subjects, out=tmp_path, work=work)
    sentence = "Left out: 2 files that cannot be read or that the table does not list (`skipped.txt`)."
    assert sentence in page.read_text(encoding="utf-8")
    listed = page.with_name("skipped.txt")
    assert listed.read_text(encoding="utf-8") == "a.png is broken.\nb.png is missing.\n"
    for study, _ in subjects:
        study.skipped = []
    page = reproduce("overview", subjects, out=tmp_path, work=work)
    assert "Left out" not in page.read_text(encoding="utf-8")
    assert not listed.exists()


def test_what_is_left_out_is_written_before_the_work_starts(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Reproduction.named("overview"), "examine", stop)
    study = Single()
    study.skipped = ["a.png is broken."]
    with pytest.raises(KeyboardInterrupt):
        reproduce("overview", [(study, Plan(**PLAN))], out=tmp_path, work=work)
    assert [path.name for path in (tmp_path / "single" / "overview").iterdir()] == ["skipped.txt"]


def test_figures_of_an_earlier_page_go_and_other_files_stay(work: Path, tmp_path: Path) -> None:
    folder = run("overview", work, tmp_path).parent
    (folder / "mine.png").write_bytes(b"")
    assert (folder / "lsb.png").exists()
    page = reproduce("overview", [(Single(artifact="brightness"), Plan(**PLAN))], out=tmp_path, work=work)
    assert page.parent == folder
    assert {path.name for path in folder.glob("*.png")} == {"biases.png", "mine.png"}


def test_another_dataset_has_another_folder(work: Path, tmp_path: Path) -> None:
    pages = [reproduce("overview", [(s, Plan(**PLAN))], out=tmp_path, work=work) for s in (Single(), Natural())]
    assert pages == [tmp_path / name / "overview" / "README.md" for name in ("single", "natural")]


def test_without_a_command_there_is_no_empty_block(work: Path, tmp_path: Path) -> None:
    page = reproduce("overview", [(Single(), Plan(**PLAN))], out=tmp_path, work=work)
    text = page.read_text(encoding="utf-8")
    assert "```" not in text
    assert re.search(r"^Made by hansfree \S+ with PyTorch \S+\.$", text, re.M)


def test_the_comparison_stands_beside_the_table_where_the_paper_has_numbers(work: Path, tmp_path: Path) -> None:
    class InThePaper(Single):
        published = Published.read("demo vanilla 78.8 1.2 49.8 1.4 - - - - - -", strengths="", seconds="")

    page = reproduce("table1", [(InThePaper(artifact="brightness"), Plan(**PLAN))], out=tmp_path, work=work)
    lines = page.with_name("comparison.csv").read_text(encoding="utf-8").splitlines()
    assert sum(",0.788,0.012,training started from random weights" in line.replace('"', "") for line in lines) == 1
    assert "Not the paper's setting (demo · brightness · single): training started" in page.read_text(encoding="utf-8")
    reproduce("table1", [(Single(artifact="brightness"), Plan(**PLAN))], out=tmp_path, work=work)
    assert not page.with_name("comparison.csv").exists(), "that of an earlier run"


def test_progress_says_which_subject_it_is_of(tmp_path: Path) -> None:
    labels = []

    def remember(steps: Iterable[Any], *, total: int, label: str) -> Iterator[Any]:
        labels.append(label)
        return iter(steps)

    subjects = [(Single(artifact=artifact), Plan(**PLAN)) for artifact in ("lsb", "brightness")]
    reproduce("q1", subjects, out=tmp_path, work=tmp_path / "work", progress=remember)
    assert "1/2 demo lsb: train biased model" in labels
    assert "2/2 demo brightness: train biased model" in labels
    labels.clear()
    reproduce("q1", subjects[:1], out=tmp_path, work=tmp_path / "work", progress=remember)
    assert labels
    assert not [label for label in labels if "lsb" in label], "one alone need not be named"


def test_an_unknown_experiment_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'table1'"):
        reproduce("tabel1", [(Single(), Plan(**PLAN))], out=tmp_path / "out", work=tmp_path / "work")
    assert not list(tmp_path.iterdir())


def test_two_subjects_of_one_name_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    subjects = [(Single(size=size), Plan(**PLAN)) for size in (32, 48)]
    with pytest.raises(OptionError, match=r"demo · brightness · single was asked for 2 times\. Allowed"):
        reproduce("ablation-cav", subjects, out=tmp_path / "out", work=tmp_path / "work")
    assert not list(tmp_path.iterdir())


def test_the_scores_are_written_before_anything_is_drawn(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Reproduction.named("q1"), "present", fail)
    with pytest.raises(KeyboardInterrupt):
        run("q1", work, tmp_path)
    assert read_rows(tmp_path / "single" / "q1" / "results.csv")
