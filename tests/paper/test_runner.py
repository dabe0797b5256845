"""Pages: scores, figures and settings of every experiment, the same bytes again, and what is checked first."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safetensors.torch import save_file

import hansfree_paper
from hansfree.corrections import RRClArC
from hansfree.errors import DataError, OptionError, UnknownNameError
from hansfree.evaluation.results import read_rows
from hansfree.models import build_model
from hansfree_paper.aggregate import SubjectKey
from hansfree_paper.dataset import BenchmarkDataset, Published
from hansfree_paper.experiments import _LOCALISED
from hansfree_paper.runner import Reproduction, finding_of, reproduce, setting_of, write_paper_departures
from hansfree_paper.subjects import Plan
from tests.paper.conftest import COMMAND, Made
from tests.paper.examples import path
from tests.pipeline.studies import PLAN, Natural, Single, Untested, opened

FIGURES = {
    "overview": {"biases", "lsb"},
    "q1": {"alignment", "localisation", "extremes-lsb-demo", *(f"gallery-{cav}-lsb-demo" for cav in _LOCALISED)},
    "table1": {"scatter", "heatmap-panel"},
    "runtime": {"times"},
    "q3": {"class-specific", "rises"},
    "natural": set(),
    "ablation-cav": {"cav-types"},
    "ablation-strength": {"strength"},
    "ablation-epochs": {"epochs"},
    "ablation-target": {"targets"},
}
PUBLISHED = Published(scores={("demo", "vanilla", "accuracy_clean"): (0.788, 0.012)}, strengths={}, seconds={})


class InThePaper(Single):
    artifacts = ("lsb", "timestamp")
    published = PUBLISHED


def run(name: str, work: Path, out: Path, study: Any = None, **options: Any) -> Path:
    return reproduce(name, [(study or Single(artifact="lsb"), Plan(**PLAN))], out=out, work=work, **options)


def figures(page: Path) -> set[str]:
    return {path.stem.removeprefix(f"{page.stem}-") for path in page.parent.glob(f"{page.stem}-*.png")}


@pytest.mark.parametrize("name", FIGURES)
def test_an_experiment_writes_page_scores_and_figures_and_resumes(
    name: str, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, page = made.text(name), made.out / f"single-{name}.md"
    assert figures(page) == FIGURES[name]
    assert text.startswith(f"# {Reproduction.named(name).title}\n")
    assert f"```bash\n{COMMAND}\n```" in text
    assert "## Setting\n\n- model: demo\n- artifact: lsb\n- dataset: Single shortcut, 32 px, seed 0\n" in text
    assert ("- layer:" in text) == (name != "overview")
    assert ("## Departures from the paper\n\n- " in text) == (name != "overview")
    assert ("- corrections fine-tune:" in text) == (name not in ("overview", "q1"))
    assert ("- strengths:" in text) == (name not in ("overview", "q1", "runtime"))
    assert {path.removeprefix(f"{page.stem}-") for path in re.findall(r"\]\((.+?)\.png\)", text)} == FIGURES[name]
    assert not re.search(r"\bnan\b|\bNone\b", text)
    scores = page.with_suffix(".csv")
    assert {row.experiment for row in read_rows(scores)} == (set() if name == "overview" else {"single-lsb-demo"})
    before = {path: path.read_bytes() for path in (scores, page)}
    for training in ("hansfree_paper.subjects.pretrain", "hansfree.corrections.latent.train_heads"):
        monkeypatch.setattr(training, None)  # a stage that ran again would raise a TypeError
    made.run(name)
    assert {path: path.read_bytes() for path in before} == before


def test_every_departure_from_the_paper_is_on_the_page() -> None:
    path = Path(hansfree_paper.__file__).parents[2] / "docs" / "paper-items.csv"
    with path.open(encoding="utf-8", newline="") as file:
        items = [item for item in csv.DictReader(file) if item["departure"]]
    assert len(items) >= 8
    shown: dict[str, set[str]] = {}  # departure -> experiments
    for name in Reproduction.members():
        for data in BenchmarkDataset.members():
            study: Any = SimpleNamespace(name=data)
            for grid in ("own", "paper"):
                lines = write_paper_departures(name, [(study, Plan(model="demo", grid=grid))])
                for item in items:
                    holds = name in (item["experiments"] or name).split() and data in (item["data"] or data).split()
                    holds &= item["unless"] != f"grid={grid}"
                    assert (item["departure"] in "".join(lines)) == holds, (item, name, data, grid)
                    if holds:
                        shown.setdefault(item["departure"], set()).add(name)
    assert shown.keys() == {item["departure"] for item in items}


def test_natural_and_untested_artifacts(tmp_path: Path) -> None:
    plan = Plan(**PLAN, left_out=("rrr", "p-clarc", "a-clarc"))
    subjects = [(study, plan) for study in (Natural(), Untested())]
    for name in ("table1", "ablation-strength"):  # heatmaps only of subjects with biased test images
        page = reproduce(name, subjects, out=tmp_path, work=tmp_path / "work")
        assert figures(page) == FIGURES[name]
        rows = read_rows(page.with_suffix(".csv"))
        assert {row.experiment for row in rows} == {"natural-plaster-demo", "untested-plaster-demo"}
        if name == "table1":  # by masks of the CAV, as in the paper, also for methods that were trained with it
            scored = {row.method for row in rows if row.metric == "artifact_relevance"}
            assert scored == {"original", "vanilla", "rr-clarc"}
    for name in ("overview", "q1"):
        with pytest.raises(DataError, match=r"No test image of Natural shortcut carries the artifact 'plaster'"):
            run(name, tmp_path / "nothing", tmp_path, Untested())
    assert not (tmp_path / "nothing").exists()


def test_skipped_files_are_recorded_before_the_work_starts(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Single()
    study.skipped = ["a.png is broken.", "b.png is missing."]
    monkeypatch.setattr(Reproduction.named("overview"), "examine", lambda *_: {}["stop"])
    with pytest.raises(KeyError):
        run("overview", made.work, tmp_path, study)
    monkeypatch.undo()
    (listed,) = tmp_path.iterdir()
    assert listed.name == "single-overview-skipped.txt"
    assert listed.read_text(encoding="utf-8") == "a.png is broken.\nb.png is missing.\n"
    assert "Left out: 2 unreadable" in run("overview", made.work, tmp_path, study).read_text(encoding="utf-8")
    study.skipped = []
    assert "Left out" not in run("overview", made.work, tmp_path, study).read_text(encoding="utf-8")
    assert not listed.exists()


def test_figures_of_an_earlier_page_are_removed(made: Made, tmp_path: Path) -> None:
    page = run("overview", made.work, tmp_path)
    (tmp_path / "mine.png").write_bytes(b"")
    assert figures(page) == {"biases", "lsb"}
    assert figures(run("overview", made.work, tmp_path, Single(artifact="brightness"))) == {"biases"}
    assert (tmp_path / "mine.png").exists()
    assert "```" not in page.read_text(encoding="utf-8")  # no command was given


def test_errors_come_before_anything_is_written(tmp_path: Path) -> None:
    twice = [(Single(size=size), Plan(**PLAN)) for size in (32, 48)]
    for name, subjects, error, fragment in (
        ("tabel1", twice[:1], UnknownNameError, "Did you mean 'table1'"),
        ("ablation-cav", twice, OptionError, r"demo · brightness · single was asked for 2 times"),
    ):
        with pytest.raises(error, match=fragment):
            reproduce(name, subjects, out=tmp_path / "out", work=tmp_path / "work")
    assert not list(tmp_path.iterdir())


def test_scores_are_written_before_figures(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made.finding("ablation-epochs")
    monkeypatch.setattr(Reproduction.named("ablation-epochs"), "present", lambda *_: {}["stop"])
    with pytest.raises(KeyError):
        run("ablation-epochs", made.work, tmp_path)
    assert read_rows(tmp_path / "single-ablation-epochs.csv")


# Facts


@pytest.mark.parametrize(
    ("study", "expected"),
    [
        (InThePaper(), PUBLISHED),
        (InThePaper(artifact="timestamp"), None),
        (InThePaper(size=40), None),
        (Single(), None),
    ],
    ids=["the paper's", "another artifact", "another size", "not in the paper"],
)
def test_the_papers_numbers_are_shown_for_its_own_bias_only(
    study: Single, expected: Published | None, tmp_path: Path
) -> None:
    with opened(tmp_path, study) as subject:
        finding = finding_of(subject, [], data=study.data("demo"), reasons={"rrr": "why"})
        assert "data" not in vars(subject), "no image is read"
    facts = finding.facts
    assert finding.key == SubjectKey("single", study.artifact, "demo")
    assert facts.published is expected
    assert (facts.chance_level, facts.majority_rate, facts.paired) == (0.25, 0.25, {})
    assert facts.is_localized == (study.artifact == "timestamp")
    assert facts.reasons == {"rrr": "why"}


WEIGHTS = "training started from random weights"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, [WEIGHTS]),
        ({"epochs": 2}, [WEIGHTS]),  # as many as the recipe has
        ({"epochs": 1}, [WEIGHTS, "1 epoch of training, in the paper 2"]),
        ({"corrected": "last"}, [WEIGHTS, "only the last linear layer was corrected"]),
        ({"correction_epochs": 3}, [WEIGHTS, "3 epochs of correction, in the paper 10"]),
        ({"weights": "file"}, []),
        ({"weights": "file", "trained": "head", "epochs": 5}, ["only what follows the layer was trained"]),
    ],
)
def test_departures_from_the_paper_are_named(options: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    if "weights" in options:
        save_file(build_model("demo", classes=4).state_dict(), tmp_path / "demo.safetensors")
        options = {**options, "weights": str(tmp_path / "demo.safetensors")}
    with opened(tmp_path, InThePaper(), **{"correction_epochs": 10, **options}) as subject:
        facts = finding_of(subject, [], data=subject.study.data("demo")).facts
    assert facts.published is PUBLISHED, "the numbers are shown all the same"
    assert len(facts.departures) == len(words)
    for found, begin in zip(facts.departures, words):
        assert found.startswith(begin)


# Settings


def test_what_the_user_chose_is_described(tmp_path: Path) -> None:
    file = tmp_path / "demo.safetensors"
    save_file(build_model("demo", classes=4).state_dict(), file)
    options = {"weights": str(file), "trained": "head", "epochs": 1, "corrected": "last", "repeats": 3, "momentum": 0.9}
    with opened(tmp_path, Single(), **options, grid="paper", left_out=("rrr",), strengths={}) as subject:
        # of a method whose rows hold the chosen strength alone, all that were tried are described
        words = setting_of(subject, path("rr-clarc", {500.0: (0.9, 0.8)}, chosen=500.0))
    assert words["training starts from"] == "`demo.safetensors`"
    assert words["trained on the biased images"].startswith("only what follows the layer, 1 epoch of Adam at 0.003")
    assert words["corrections fine-tune"].startswith("the last linear layer only, 2 epochs of SGD with momentum 0.9 at")
    assert words["seeds of the correction"] == "0, 1, 2; the strength is chosen with the first"
    ends = (min(RRClArC.info.paper_strengths), max(RRClArC.info.paper_strengths))
    assert words["strengths"] == f"rr-clarc 22 from {ends[0]:g} to {ends[1]:g}, in the paper's units"
    assert words["not run"] == "rrr"
