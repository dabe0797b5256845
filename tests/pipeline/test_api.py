"""Whole runs on tiny images: results, recommendation, export, resume and repair."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from hansfree import api
from hansfree.api import Result
from hansfree.errors import DataError, OptionError, RunError
from hansfree.evaluation.results import load_results
from hansfree.export.run import export_run
from hansfree.pipeline import Experiment
from hansfree.pipeline.checks import prepare_run
from hansfree.pipeline.config import read_run_file
from hansfree.pipeline.identity import check_unchanged
from hansfree.report.text import describe_notes
from tests.pipeline.user import COUNTS, build, make_user, read_results, read_table, write_run, write_table

# What makes the tiny model clearly better; the paper's small steps would take many epochs.
HELPS = {"learning_rate": 3e-3, "strengths": {"rr-clarc": [0.01, 0.02, 0.03]}}


def run(user: Path, **sections: Any) -> Result:
    return api.run(prepare_run(read_run_file(write_run(user / "run.yaml", **sections))))


def run_quick(user: Path, **sections: Any) -> Result:
    quick = {"methods": ["vanilla"], "epochs": 1}
    sections["correction"] = {**quick, "strengths": {}, **sections.get("correction", {})}
    return run(user, **sections)


def summary(user: Path, name: str = "run") -> dict[str, Any]:
    content: dict[str, Any] = json.loads((user / name / "results.json").read_text())
    return content


def read_back(out: Path) -> Path:
    """Read what a report is made of, and draw nothing: figures take most of a tiny run's time; two runs have them."""
    assert load_results(out).rows
    return out / "report.html"


@pytest.fixture
def unreported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansfree.api.write_report", read_back)


@pytest.fixture(scope="module")
def natural(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with counter-examples, enough to show that a correction helps; tests must not change it."""
    counts = {kind: 4 * n if kind[0] == "test" and kind[2] else n for kind, n in COUNTS.items()}
    user = make_user(tmp_path_factory.mktemp("natural") / "user", counts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hansfree.api.write_report", read_back)
        run(user, artifact={"name": "chessboard"}, correction=HELPS)
    return user


def test_a_natural_bias_with_counter_examples(natural: Path) -> None:
    rows, told = read_results(natural / "run"), summary(natural)
    methods = {row["method"] for row in rows if row["metric"] == "balanced_accuracy_biased" and row["chosen"] == "1"}
    assert methods >= {"original", "vanilla", "p-clarc"}
    assert not [row for row in rows if row["metric"] == "flip_rate"]  # nothing was put in
    assert all(claim["can_be_made"] for claim in told["meta"]["claims"] if claim["name"] != "flip rate")
    assert told["meta"]["artifact"] == "chessboard"
    assert {each["rival"] for each in told["paired_classes"]} == {"original"}
    assert "data.shares" in told["meta"]["unused"]
    assert told["meta"]["title"].endswith(": chessboard")
    for name in ("config.yaml", "run.yaml", "diagnostics.json", "original.safetensors", "cavs.safetensors"):
        assert (natural / "run" / name).stat().st_size > 0


def test_the_recommended_model_is_the_best_on_validation_images(natural: Path) -> None:
    told = summary(natural)
    best = told["meta"]["recommended"]
    assert best in ("p-clarc", "rr-clarc")
    last = {
        row["method"]: float(row["value"])
        for row in read_results(natural / "run")
        if row["split"] == "val" and row["chosen"] == "1" and row["metric"] == "balanced_accuracy_biased"
    }  # rows are in the order of epochs
    admissible = {method for method in ("p-clarc", "rr-clarc") if told["selection"][method]["admissible"]}
    assert best in admissible
    assert last[best] == max(last[method] for method in admissible)
    assert [path.name for path in (natural / "run" / "exported").iterdir()] == [best]
    assert told["verdicts"][best]["level"] == "partly_corrected", "the most that can be said without insertion"
    card = (natural / "run" / "exported" / best / "MODEL_CARD.md").read_text()
    assert f"| original weights | {told['meta']['hashes']['original weights']} " in card, "as the report names them"
    with np.load(natural / "run" / "heatmaps.npz") as shown:
        names = [told["meta"]["image_names"][str(id_)] for id_ in shown["ids"]]
    assert names
    assert all("test-" in name for name in names), "files of the user"
    assert "**Verdict on the test images: partly corrected.**" in card


def test_a_method_that_is_added_later_goes_on(natural: Path, tmp_path: Path, unreported: None) -> None:
    user = Path(shutil.copytree(natural, tmp_path / "moved"))  # another place is no other run
    before = {path.name: path.stat().st_mtime_ns for path in (user / "run" / "stages").iterdir()}
    methods = ["vanilla", "p-clarc", "rr-clarc", "a-clarc"]
    run(user, correction={**HELPS, "methods": methods}, artifact={"name": "board"}, workers=0)
    after = {path.name: path.stat().st_mtime_ns for path in (user / "run" / "stages").iterdir()}
    assert after.keys() - before.keys() == {"a-clarc.json", "a-clarc.npz"}
    assert {name: after[name] for name in before} == before
    assert "a-clarc" in {row["method"] for row in read_results(user / "run")}
    assert summary(user)["meta"]["artifact"] == "board"


@pytest.mark.parametrize("strengths", [{}, {"rr-clarc": 3}, {"rr-clarc": [0.01, 0.02]}])
def test_other_strengths_of_a_method_that_is_done_are_refused_before_the_run(
    natural: Path, strengths: dict[str, Any]
) -> None:
    file = write_run(natural / "other.yaml", correction={**HELPS, "strengths": strengths})
    told = r"has rr-clarc with other strengths: was \[0\.01, 0\.02, 0\.03\], is now \[.*\]\. Restore them"
    with pytest.raises(RunError, match=told):
        prepare_run(read_run_file(file))
    file.unlink()


def test_other_weights_in_the_same_folder_are_refused(natural: Path, tmp_path: Path) -> None:
    user = Path(shutil.copytree(natural, tmp_path / "user"))
    before = (user / "run" / "results.csv").read_bytes()
    torch.manual_seed(0)
    save_file(build().state_dict(), user / "two.safetensors")
    with pytest.raises(RunError, match="was computed with other weights"):
        run(user, correction=HELPS)
    assert (user / "run" / "results.csv").read_bytes() == before


def changed_to(user: Path, rows: list[tuple[str, ...]], **artifact: Any) -> None:
    """Look whether a user's run may go on with another table."""
    write_table(user / "labels.csv", list(rows))
    file = write_run(user / "run.yaml", correction=HELPS, artifact=artifact)
    check_unchanged(prepare_run(read_run_file(file)))


def test_what_changed_in_the_images_is_told_in_words(natural: Path, tmp_path: Path) -> None:
    user = Path(shutil.copytree(natural, tmp_path / "user"))
    rows = read_table(user / "labels.csv")
    changed_to(user, rows)
    image, label, bit, part = rows[0]
    with pytest.raises(RunError, match=r"holds another run \(the labels of 1 image changed\)"):
        changed_to(user, [(image, "bright" if label == "dark" else "dark", bit, part), *rows[1:]])
    fixed = [(image, label, str(1 - int(bit)), part) for image, label, bit, part in rows[:3]]
    with pytest.raises(RunError, match=r"holds another run \(the artifact labels of 3 images changed\)"):
        changed_to(user, [*fixed, *rows[3:]])
    moved = [(*rows[0][:3], "val"), *fixed[1:2], *rows[2:]]
    with pytest.raises(RunError, match=r"\(the artifact labels of 1 image and the splits of 1 image changed\)"):
        changed_to(user, moved)
    with pytest.raises(RunError, match=rf"\(the list of images changed: {len(rows)} before, {len(rows) - 1} now\)"):
        changed_to(user, rows[1:])
    (user / "images" / "train-0-0-0.png").touch()
    with pytest.raises(RunError, match=r"\(a file \(name, size or modification time\), the inserted artifact, or "):
        changed_to(user, rows)
    kept = user / "run" / "images.npz"
    for lose in (lambda: kept.write_bytes(b"damaged"), kept.unlink):  # a run that an earlier version began has none
        lose()
        with pytest.raises(RunError, match=r"\(the images changed: files, labels, artifact labels or splits\)"):
            changed_to(user, rows)


def test_a_run_goes_on_when_its_class_is_written_down(tmp_path: Path, unreported: None) -> None:
    user = make_user(tmp_path / "user")
    run_quick(user, artifact={"biased_class": None})
    before = (user / "run" / "results.csv").read_bytes()
    run_quick(user, artifact={"biased_class": "dark"})
    assert (user / "run" / "results.csv").read_bytes() == before


def test_without_counter_examples_the_run_says_what_cannot_be_known(tmp_path: Path) -> None:
    counts = {
        kind: (0 if kind[1:] == (1, 1) else 10 if kind[0] != "train" and kind[2] else n) for kind, n in COUNTS.items()
    }
    user = make_user(tmp_path / "user", counts)
    finished = run(user, artifact={"transplant": False})
    told = summary(user)
    claims = {claim["name"]: claim["can_be_made"] for claim in told["meta"]["claims"]}
    assert not claims["accuracy with the artifact"]
    assert not claims["strength chosen by accuracy"]
    assert "derivative" in told["selection"]["rr-clarc"]
    rows = read_results(user / "run")
    known = [row for row in rows if row["metric"].endswith("_biased") and row["value"] and row["split"] == "test"]
    assert not [row for row in known if int(row["n"]) < 25], "10 images are no score"
    assert finished.recommended is not None
    assert [path.name for path in (user / "run" / "exported").iterdir()] == [f"unproven-{finished.recommended}"]
    assert not [
        row for row in rows if row["metric"] in ("accuracy_biased", "balanced_accuracy_biased") and row["value"]
    ]
    page = (user / "run" / "report.html").read_text()
    assert "n/a (n = " in page
    assert "artifact artifact" not in page
    assert finished.recommended == told["meta"]["recommended"]
    assert "Recommended: " not in page
    assert "Best guess, not proven: " in page
    words = " ".join(finished.sentences)
    assert "estimated effect of the artifact on the log-odds of validation images, the smaller the better" in words


def test_wrong_artifact_labels_are_named_before_any_training(
    user: Path, unreported: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = ["images/train-0-1-3.png", "images/train-0-1-9.png", "images/train-0-0-5.png"]  # a tenth of the class
    rows = [
        (image, label, 1 - int(bit) if image in wrong else bit, part)
        for image, label, bit, part in read_table(user / "labels.csv")
    ]
    write_table(user / "labels.csv", rows)
    told: list[str] = []
    rows_for = Experiment.rows_for
    monkeypatch.setattr(Experiment, "rows_for", lambda *args: told.append(caplog.text) or rows_for(*args))
    run_quick(user)
    suspect_labels = json.loads((user / "run" / "diagnostics.json").read_text())["suspect_labels"]
    named = [mark["id"] for mark in suspect_labels]
    assert set(wrong) & set(named)
    assert f"{len(named)} image" in told[0]
    assert named[0] in told[0]
    with np.load(user / "run" / "suspect_labels.npz") as kept, Image.open(user / named[0]) as picture:
        assert len(kept["pictures"]) == min(len(named), 6)
        np.testing.assert_array_equal(kept["pictures"][0], picture.convert("RGB"))


def test_a_model_with_one_logit(user: Path, unreported: None) -> None:
    model = {"source": "net.py:binary", "weights": "one.safetensors", "output": "binary"}
    finished = run_quick(user, model=model, correction={"methods": ["rr-clarc"], "strengths": {"rr-clarc": [0.1]}})
    assert {"auroc_clean", "balanced_accuracy_biased"} <= {row.metric for row in finished.scores}
    done = export_run(user / "run", "rr-clarc", force=True)
    build(1).load_state_dict(load_file(done.weights.weights), strict=True)


def test_one_label_of_many(user: Path, unreported: None) -> None:
    rows = [
        (image, ";".join(filter(None, ("hot" if label == "bright" else "", "wet" if i % 2 else ""))), bit, part)
        for i, (image, label, bit, part) in enumerate(read_table(user / "labels.csv"))
    ]
    write_table(user / "labels.csv", list(rows))
    model = {"output": "label", "label": "hot"}
    finished = run_quick(user, model=model, data={"classes": ["wet", "hot"]}, artifact={"biased_class": None})
    assert summary(user)["meta"]["n_train"] == 56
    done = export_run(user / "run", "vanilla", force=True)
    state, before = load_file(done.weights.weights), load_file(user / "two.safetensors")
    changed = {name for name in before if not torch.equal(state[name], before[name])}
    assert changed <= {"6.weight", "6.bias"}  # only the last layer, for the other labels share all the rest
    np.testing.assert_array_equal(state["6.weight"][0], before["6.weight"][0])
    assert finished.scores


def test_nothing_admissible_is_a_plain_word_and_no_export(user: Path, unreported: None) -> None:
    wild = {"strengths": {"rr-clarc": [1e12]}, "learning_rate": 1, "stable": False}
    finished = run(user, correction={"methods": ["vanilla", "rr-clarc"], **wild})
    assert finished.recommended is None
    told = " ".join(finished.sentences)
    assert "Do not use any of the models: none is admissible" in told
    assert summary(user)["selection"]["rr-clarc"]["diverged"] == [1e12]
    assert not (user / "run" / "exported").exists()
    with pytest.raises(OptionError, match=r"Do not use the models of .*name it: vanilla\."):
        export_run(user / "run")
    assert export_run(user / "run", "vanilla").weights.weights.exists()


def test_what_a_method_refuses_is_told_before_any_is_trained(user: Path, unreported: None) -> None:
    """There is no training image of one class: DFR cannot make that class's weights."""
    rows = read_table(user / "labels.csv")
    write_table(user / "labels.csv", [row for row in rows if not (row[1] == "bright" and row[3] == "train")])
    with pytest.raises(DataError, match="there is no image of class 1"):
        run(user, correction={"methods": ["vanilla", "dfr"], "strengths": {}})
    assert not (user / "run" / "stages" / "vanilla.json").exists()


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(path.read_bytes()[:-50]), Path.unlink])
def test_damaged_and_lost_files_are_computed_again(
    user: Path, unreported: None, damage: Callable[[Path], object]
) -> None:
    run_quick(user)
    names = ("cavs.safetensors", "stages/vanilla.npz", "corrected/vanilla.safetensors", "results.csv")
    before = {user / "run" / name: (user / "run" / name).read_bytes() for name in names}
    for path in before:
        damage(path)
    run_quick(user)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("name", ["corrected/vanilla.safetensors", "original.safetensors"])
def test_no_flipped_bit_is_exported(user: Path, unreported: None, name: str) -> None:
    """The last bit of a weight changes too little for the comparison of logits."""
    run_quick(user, correction=FEW)
    path = user / "run" / name
    content = bytearray(path.read_bytes())
    content[-4] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunError, match=rf"{name.split('/')[-1]} is damaged\. Delete it and \S*\.json, and resume"):
        export_run(user / "run", "vanilla", force=True)


FEW = {"methods": ["vanilla"], "strengths": {}}


def write_marked(user: Path, *, marked: int) -> Path:
    """Give the table a column of marks, on so many training images of each kind; return the run file."""
    seen: dict[tuple[str, ...], int] = {}
    rows: list[tuple[object, ...]] = []
    for image, label, artifact, part in read_table(user / "labels.csv"):
        kind = (label, artifact, part)
        seen[kind] = seen.get(kind, 0) + 1
        rows.append((image, label, artifact, part, int(part == "train" and seen[kind] <= marked)))
    write_table(user / "marked.csv", rows, ("image", "label", "artifact", "split", "artifact_annotated"))
    return write_run(user / "run.yaml", data={"table": "marked.csv"}, correction=FEW)


def test_proposed_bits_are_told_everywhere(user: Path, unreported: None) -> None:
    marked = 8
    prepared = prepare_run(read_run_file(write_marked(user, marked=marked)))
    (told,) = (note for name, note in prepared.facts if name == "note" and "artifact labels" in note)
    n = len(read_table(user / "marked.csv"))
    by_hand = 3 * marked + 2  # there are two bright training images with the artifact
    assert told.startswith(f"A person gave {by_hand} of the {n} artifact labels, and the labelling page proposed")
    finished = api.run(prepared)
    assert "Only the 16 marked images were examined; the other 12" in finished.sentences[0]
    proposed = json.loads((user / "run" / "diagnostics.json").read_text())["proposed"]
    assert proposed["n"] == 12
    assert told in describe_notes(load_results(user / "run"))  # what report and card print
    with pytest.raises(RunError):  # the same bits, but other diagnostics
        api.run(prepare_run(read_run_file(write_marked(user, marked=marked + 1))))
