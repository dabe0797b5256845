"""What a run file removes and keeps beside its artifact: where the directions come from, and what is refused."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hansfree.cavs import SignalCAV, load_cavs
from hansfree.errors import DataError, OptionError, RunError
from hansfree.experiments.workspace import Material
from hansfree.report.reading import load_results
from hansfree.runfile import Opened, carry_out, open_run_file, read_run_file
from hansfree.runfile.running import run_config
from tests.runfile.examples import ENOUGH, read_table, write_run, write_table

HEADER = ("image", "label", "artifact", "split", "ink", "hair")
OWN = {"insert": "patch", "file": "sticker.png", "place": "top-left"}


def opened(user: Path, *, cav: str = "signal", **artifact: Any) -> Opened:
    correction = {"methods": ["p-clarc"], "strengths": {}, "cav": cav}
    return open_run_file(
        read_run_file(write_run(user / "run.yaml", artifact={**OWN, **artifact}, correction=correction))
    )


def mark(user: Path, *, every: int = 2) -> list[tuple[str, ...]]:
    """Add two columns: ink in some images of `bright`, hair in few of any class; return the rows."""
    rows = []
    for i, row in enumerate(read_table(user / "labels.csv")):
        has_ink = row[1] == "bright" and i % every == 0
        rows.append((*row[:4], str(int(has_ink)), "true" if i % 3 == 0 else "false"))
    write_table(user / "labels.csv", list(rows), HEADER)
    return rows


@pytest.fixture
def unreported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansfree.runfile.running.write_report", lambda out: out / "report.html")


def test_a_column_is_learned_in_its_own_class_without_the_own_artifact(user: Path, unreported: None) -> None:
    rows = mark(user)
    run = opened(user, remove=["ink", "lsb"], keep="hair")
    train = [i for i, row in enumerate(rows) if row[3] == "train"]
    inside = [i for i in train if rows[i][1:3] == ("bright", "0")]
    assert [concept.name for concept in run.setting.removed] == ["ink", "lsb"]
    ink, lsb = run.setting.removed
    assert run.setting.data.train.ids[ink.rows].tolist() == inside
    assert isinstance(ink.told_by, np.ndarray)
    assert ink.told_by.tolist() == [rows[i][4] == "1" for i in inside]
    clean = [i for i in train if rows[i][2] == "0"]
    assert run.setting.data.train.ids[lsb.rows].tolist() == clean
    assert not isinstance(lsb.told_by, np.ndarray)
    assert lsb.told_by.ids.tolist() == clean

    carry_out(run)
    cavs = load_cavs(user / "run" / "cav-signal-joint.safetensors")
    seen = Material(run.setting, user / "run", user / "run" / "activations").activations["train"].pooled
    expected = SignalCAV().fit(seen[ink.rows], ink.told_by)
    np.testing.assert_allclose(cavs["of ink"].directions_, expected.directions_)
    with (user / "run" / "results.csv").open(newline="") as file:
        told = list(csv.DictReader(file))
    assert {row["cav"] for row in told if row["method"] == "p-clarc"} == {"signal: sticker + ink + lsb; kept: hair"}
    assert {row["split"] for row in told} == {"val", "test", "test with lsb"}, "a column cannot be put in"
    verdict = " ".join(carry_out(run).sentences)
    assert "Not measured, as hansfree cannot put it into test images: ink and hair." in verdict


def test_a_column_that_means_nothing_is_warned_of(
    user: Path, unreported: None, caplog: pytest.LogCaptureFixture
) -> None:
    for row in mark(user):
        if row[4] == "1":  # what ink looks like; hair is every third image, and looks like nothing
            image = np.array(Image.open(user / row[0]))
            image[:, 20:] = 255
            Image.fromarray(image).save(user / row[0])
    doubt = (
        r"hair: the 5 training images with it are told from the 9 without no better \(held-out AUC 0\.\d\d\) than with "
        r"shuffled bits\. It does not show in this layer, its bits are wrong, or they are too few: leave it out\."
    )
    for _ in range(2):  # a run that goes on says it again
        caplog.clear()
        carry_out(opened(user, remove="ink", keep="hair"))
        (told,) = (record.getMessage() for record in caplog.records if record.name == "hansfree.experiments.experiment")
        assert re.fullmatch(doubt, told)
        assert load_results(user / "run").notes()[-1] == told


def test_a_kind_that_learns_from_pairs_puts_in_what_it_can(user: Path) -> None:
    mark(user)
    run = opened(user, remove=["ink", "lsb"], cav="pair")
    ink, lsb = run.setting.removed
    assert isinstance(ink.told_by, np.ndarray)
    assert not isinstance(lsb.told_by, np.ndarray)
    rows = read_table(user / "labels.csv")
    write_table(user / "labels.csv", list(rows), (*HEADER[:4], "lsb", "hair"))
    for cav, is_marked in (("signal", True), ("pair", False)):
        (found,) = opened(user, remove="lsb", cav=cav).setting.removed
        assert isinstance(found.told_by, np.ndarray) == is_marked


@pytest.mark.parametrize(
    ("artifact", "sentence"),
    [
        (
            {"remove": ["inc"]},
            "artifact.remove: 'inc' is no further column of the table, and no artifact that can be put in by its "
            "name. Did you mean 'ink'? Further columns of labels.csv: ink, hair. Can be put in: timestamp, "
            "brightness, lsb.",
        ),
        ({"keep": ["brightnes"]}, "by its name. Did you mean 'brightness'?"),
        ({"keep": ["label"]}, "artifact.keep: 'label' is no further column"),
        ({"keep": ["plaster"]}, "artifact.keep: 'plaster' is no further column"),
    ],
)
def test_a_name_that_means_nothing_is_refused_before_any_picture_is_read(
    user: Path, artifact: dict[str, Any], sentence: str
) -> None:
    mark(user)
    for picture in (user / "images").iterdir():
        picture.write_bytes(b"no picture")
    with pytest.raises(OptionError, match=re.escape(sentence)):
        opened(user, **artifact)


def test_a_name_is_refused_where_there_is_no_column_to_name(user: Path) -> None:
    with pytest.raises(OptionError, match=r"Further columns of labels\.csv: none\. Can be put in: timestamp, "):
        opened(user, remove="ink")
    without = {"data": {"table": None}, "artifact": {**OWN, "remove": ["ink"]}}
    with pytest.raises(OptionError, match=r"There is no table \(data\.table\)\. Can be put in: timestamp, "):
        open_run_file(read_run_file(write_run(user / "run.yaml", **without)))


def test_what_cannot_be_learned_is_refused(user: Path) -> None:
    mark(user, every=20)
    with pytest.raises(DataError, match="ink: no class has 5 training images with it and 5 without"):
        opened(user, remove="ink")
    rows = [(*row[:4], "2", "0") for row in read_table(user / "labels.csv")]
    write_table(user / "labels.csv", list(rows), HEADER)
    with pytest.raises(DataError, match="has '2' as ink of"):
        opened(user, remove="ink")


def test_what_looks_like_the_artifact_cannot_be_kept(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansfree.cavs.joint.LEAST_ANGLE", 90)
    with pytest.raises(DataError, match=r"^sticker \(signal\) lies at \d+\.\d degrees to what is protected"):
        carry_out(opened(user, keep="lsb"))
    assert not (user / "run" / "stages" / "p-clarc.json").exists()


def test_it_is_another_run(user: Path, unreported: None) -> None:
    rows = mark(user)
    plain = run_config(opened(user))
    assert not {"remove", "keep"} & plain["artifact"].keys(), "runs that were begun before go on"
    config = run_config(opened(user, remove="ink"))
    assert config["artifact"]["remove"] == ["ink"]
    carry_out(opened(user, remove="ink"))
    for changed in ({"remove": "lsb"}, {}, {"remove": "ink", "keep": "hair"}):
        with pytest.raises(RunError, match=r"holds another run \(artifact\.(remove|keep) was"):
            carry_out(opened(user, **changed))
    with pytest.raises(OptionError, match="Did you mean 'ink'"):  # rather than that it is another run
        opened(user, remove="inc")
    carry_out(opened(user, remove="ink", also=["lsb"]))  # which changes no model
    write_table(user / "labels.csv", [(*row[:4], str(1 - int(row[4])), row[5]) for row in rows], HEADER)
    assert run_config(opened(user, remove="ink"))["images"] != config["images"], "other marks"


def test_check_tells_where_directions_come_from_and_the_room(user: Path) -> None:
    mark(user)
    plain, told = opened(user).facts, opened(user, remove=["lsb"], keep=["ink"]).facts
    assert ("removed too", "lsb, put into 40 training images") in told
    assert ("kept", "ink, in 13 of 26 training images of 'bright'") in told
    before, after = (int(dict(facts)["disk"].partition(" for ")[2].split()[0]) for facts in (plain, told))
    assert after - before == 40 + 2 * ENOUGH
