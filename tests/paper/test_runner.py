"""Every experiment end to end on a tiny subject: a page, a CSV file, its figures, and the same bytes again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hansfree.errors import DataError, OptionError, UnknownNameError
from hansfree.evaluation.results import read_rows
from hansfree.paper.dataset import Published
from hansfree.paper.runner import Reproduction, reproduce
from hansfree.pipeline.workspace import Plan
from tests.pipeline.studies import PLAN, Natural, Single, Untested

COMMAND = "hansfree reproduce something --data single"
FIGURES = {
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
}


def run(name: str, work: Path, out: Path, study: Any = None, **options: Any) -> Path:
    return reproduce(name, [(study or Single(artifact="lsb"), Plan(**PLAN))], out=out, work=work, **options)


def figures(page: Path) -> set[str]:
    return {path.stem.removeprefix(f"{page.stem}-") for path in page.parent.glob(f"{page.stem}-*.png")}


@pytest.mark.parametrize("name", list(FIGURES))
def test_an_experiment_writes_page_scores_and_figures(
    name: str, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = run(name, work, tmp_path, command=COMMAND)
    assert page == tmp_path / f"single-{name}.md"
    assert figures(page) == FIGURES[name]
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {Reproduction.named(name).title}\n")
    assert f"```bash\n{COMMAND}\n```" in text
    assert "## Setting\n\n- model: demo\n- artifact: lsb\n- dataset: Single shortcut, 32 px, seed 0\n" in text
    assert ("- layer:" in text) == (name != "overview")
    assert ("- corrections fine-tune:" in text) == (name not in ("overview", "q1"))
    assert ("- strengths:" in text) == (name not in ("overview", "q1", "runtime"))
    assert {path.removeprefix(f"{page.stem}-") for path in re.findall(r"\]\((.+?)\.png\)", text)} == FIGURES[name]
    assert not re.search(r"\bnan\b|\bNone\b", text)
    scores = page.with_suffix(".csv")
    assert {row.experiment for row in read_rows(scores)} == (set() if name == "overview" else {"single-lsb-demo"})

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a finished stage ran again")

    before = {path: path.read_bytes() for path in (scores, page)}
    monkeypatch.setattr("hansfree.paper.subjects.pretrain", fail)
    run(name, work, tmp_path, command=COMMAND)
    assert {path: path.read_bytes() for path in before} == before


def test_natural_and_untested_artifacts(work: Path, tmp_path: Path) -> None:
    subjects = [(study, Plan(**PLAN)) for study in (Natural(), Untested())]
    for name in ("table1", "ablation-strength"):  # heatmaps only of subjects with biased test images
        page = reproduce(name, subjects, out=tmp_path, work=work)
        assert figures(page) == FIGURES[name]
        assert {row.experiment for row in read_rows(page.with_suffix(".csv"))} == {
            "natural-plaster-demo",
            "untested-plaster-demo",
        }
    for name in ("overview", "q1"):
        with pytest.raises(DataError, match=r"No test image of Natural shortcut carries the artifact 'plaster'"):
            run(name, tmp_path / "work", tmp_path, Untested())
    assert not (tmp_path / "work").exists()


def test_skipped_files_are_recorded_before_the_work_starts(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Single()
    study.skipped = ["a.png is broken.", "b.png is missing."]
    monkeypatch.setattr(Reproduction.named("overview"), "examine", lambda *_: {}["stop"])
    with pytest.raises(KeyError):
        run("overview", work, tmp_path, study)
    monkeypatch.undo()
    (listed,) = tmp_path.iterdir()
    assert listed.name == "single-overview-skipped.txt"
    assert listed.read_text(encoding="utf-8") == "a.png is broken.\nb.png is missing.\n"
    assert "Left out: 2 unreadable" in run("overview", work, tmp_path, study).read_text(encoding="utf-8")
    study.skipped = []
    assert "Left out" not in run("overview", work, tmp_path, study).read_text(encoding="utf-8")
    assert not listed.exists()


def test_figures_of_an_earlier_page_are_removed(work: Path, tmp_path: Path) -> None:
    page = run("overview", work, tmp_path)
    (tmp_path / "mine.png").write_bytes(b"")
    assert figures(page) == {"biases", "lsb"}
    assert figures(run("overview", work, tmp_path, Single(artifact="brightness"))) == {"biases"}
    assert (tmp_path / "mine.png").exists()
    assert "```" not in page.read_text(encoding="utf-8")  # no command was given


def test_the_papers_numbers_stand_beside_ours(work: Path, tmp_path: Path) -> None:
    class InThePaper(Single):
        published = Published(scores={("demo", "vanilla", "accuracy_clean"): (0.788, 0.012)}, strengths={}, seconds={})

    text = run("table1", work, tmp_path, InThePaper(artifact="brightness")).read_text(encoding="utf-8")
    assert "| 78.8 ± 1.2 |" in text
    assert "Not the paper's setting (demo · brightness · single): training started" in text


def test_progress_names_the_subject_if_there_are_several(tmp_path: Path) -> None:
    labels = []

    def remember(steps: Iterable[Any], *, total: int, label: str) -> Iterator[Any]:
        labels.append(label)
        return iter(steps)

    subjects = [(Single(artifact=artifact), Plan(**PLAN)) for artifact in ("lsb", "brightness")]
    reproduce("q1", subjects, out=tmp_path, work=tmp_path / "work", progress=remember)
    assert {"1/2 demo lsb: train biased model", "2/2 demo brightness: train biased model"} <= set(labels)
    labels.clear()
    reproduce("q1", subjects[:1], out=tmp_path, work=tmp_path / "work", progress=remember)
    assert labels
    assert not [label for label in labels if "lsb" in label]


def test_errors_come_before_anything_is_written(tmp_path: Path) -> None:
    twice = [(Single(size=size), Plan(**PLAN)) for size in (32, 48)]
    for name, subjects, error, fragment in (
        ("tabel1", twice[:1], UnknownNameError, "Did you mean 'table1'"),
        ("ablation-cav", twice, OptionError, r"demo · brightness · single was asked for 2 times"),
    ):
        with pytest.raises(error, match=fragment):
            reproduce(name, subjects, out=tmp_path / "out", work=tmp_path / "work")
    assert not list(tmp_path.iterdir())


def test_scores_are_written_before_figures(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reproduction.named("q1"), "present", lambda *_: {}["stop"])
    with pytest.raises(KeyError):
        run("q1", work, tmp_path)
    assert read_rows(tmp_path / "single-q1.csv")
