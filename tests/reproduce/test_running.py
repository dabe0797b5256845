"""Every experiment end to end on a tiny subject: a page, a table, its figures, and the same bytes again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hansfree.errors import UnknownNameError
from hansfree.experiments.plans import Plan
from hansfree.reproduce import Reproduction, reproduce
from hansfree.results import read_rows
from tests.experiments.examples import PLAN, Natural, Single

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
}


def run(name: str, work: Path, out: Path) -> Path:
    return reproduce(name, [(Single(artifact="lsb"), Plan(**PLAN))], out=out, work=work, command=COMMAND)


@pytest.mark.parametrize("name", list(Reproduction.members()))
def test_it_writes_page_table_and_figures_and_the_same_again(
    name: str, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = run(name, work, tmp_path)
    folder = tmp_path / name
    assert page == folder / "README.md"
    drawn = {path.stem for path in folder.glob("*.png")}
    assert drawn == PICTURES[name]
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {Reproduction.named(name).title}\n")
    assert f"```bash\n{COMMAND}\n```" in text
    assert set(re.findall(r"\]\((.+?)\.png\)", text)) == drawn
    assert not re.search(r"\bnan\b|\bNone\b", text)
    rows = read_rows(folder / "results.csv")
    assert bool(rows) == (name != "overview")
    assert {row.experiment for row in rows} <= {"single-lsb-demo"}
    assert not (folder / "skipped.txt").exists()

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("what is done is done again")

    before = {path.name: path.read_bytes() for path in (folder / "results.csv", page)}
    for where in ("corrections.base.train_heads", "experiments.base_models.pretrain"):
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


def test_images_that_were_left_out_are_counted_once(work: Path, tmp_path: Path) -> None:
    subjects = []
    for artifact in ("lsb", "brightness"):
        study = Single(artifact=artifact)
        study.skipped = ["a.png is broken.", "b.png is missing."]
        subjects.append((study, Plan(**PLAN)))
    page = reproduce("overview", subjects, out=tmp_path, work=work)
    assert "2 images could not be read and were left out: `skipped.txt`." in page.read_text(encoding="utf-8")
    assert (page.parent / "skipped.txt").read_text(encoding="utf-8") == "a.png is broken.\nb.png is missing.\n"


def test_an_unknown_experiment_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'table1'"):
        reproduce("tabel1", [(Single(), Plan(**PLAN))], out=tmp_path / "out", work=tmp_path / "work")
    assert not list(tmp_path.iterdir())
