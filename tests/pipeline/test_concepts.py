"""Several artifacts in one run: which directions are removed or protected, and the effect."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hansfree import api
from hansfree.cavs import SignalCAV, load_cavs
from hansfree.errors import DataError, OptionError
from hansfree.evaluation.results import load_results
from hansfree.pipeline.checks import PreparedRun, prepare_run
from hansfree.pipeline.config import read_run_file
from hansfree.pipeline.workspace import Workspace
from hansfree.report.text import describe_notes
from tests.pipeline.user import read_results, read_table, write_run, write_table

HEADER = ("image", "label", "artifact", "split", "ink", "hair")
OWN = {"insert": "patch", "file": "sticker.png", "place": "top-left"}


def prepared(user: Path, *, cav: str = "signal", **artifact: Any) -> PreparedRun:
    correction = {"methods": ["p-clarc"], "strengths": {}, "cav": cav}
    return prepare_run(read_run_file(write_run(user / "run.yaml", artifact={**OWN, **artifact}, correction=correction)))


def mark(user: Path, *, every: int = 2) -> list[tuple[str, ...]]:
    """Add two columns: ink in some images of `bright`, hair in few of any class; return the rows."""
    rows = []
    for i, row in enumerate(read_table(user / "labels.csv")):
        has_ink = row[1] == "bright" and i % every == 0
        rows.append((*row[:4], str(int(has_ink)), "true" if i % 3 == 0 else "false"))
    write_table(user / "labels.csv", list(rows), HEADER)
    return rows


def test_a_column_is_learned_in_its_own_class_without_the_own_artifact(user: Path, unreported: None) -> None:
    rows = mark(user)
    run = prepared(user, remove=["ink", "lsb"], keep="hair")
    train = [i for i, row in enumerate(rows) if row[3] == "train"]
    inside = [i for i in train if rows[i][1:3] == ("bright", "0")]
    assert [concept.name for concept in run.setting.removed] == ["ink", "lsb"]
    ink, lsb = run.setting.removed
    assert run.setting.data.train.ids[ink.rows].tolist() == inside
    assert ink.labels is not None
    assert ink.labels.tolist() == [rows[i][4] == "1" for i in inside]
    clean = [i for i in train if rows[i][2] == "0"]
    assert run.setting.data.train.ids[lsb.rows].tolist() == clean
    assert lsb.inserted is not None
    assert lsb.inserted.ids.tolist() == clean

    sentences = api.run(run).sentences
    cavs = load_cavs(user / "run" / "cav-signal-joint.safetensors")
    seen = Workspace(run.setting, user / "run", user / "run" / "activations").activations["train"].pooled
    expected = SignalCAV().fit(seen[ink.rows], ink.labels)
    np.testing.assert_allclose(cavs["of ink"].directions_, expected.directions_)
    told = read_results(user / "run")
    assert {row["cav"] for row in told if row["method"] == "p-clarc"} == {"signal: sticker + ink + lsb; kept: hair"}
    assert {row["artifact"] for row in told} - {"", "without", "with"} == {"lsb"}, "a column cannot be put in"
    assert "Not measured, as it cannot be inserted into test images: ink and hair." in " ".join(sentences)


def test_a_column_that_means_nothing_is_warned_of(
    user: Path, unreported: None, caplog: pytest.LogCaptureFixture
) -> None:
    for row in mark(user):
        if row[4] == "1":  # what ink looks like; hair is every third image, and looks like nothing
            image = np.array(Image.open(user / row[0]))
            image[:, 20:] = 255
            Image.fromarray(image).save(user / row[0])
    doubt = (
        r"hair: held-out AUC 0\.\d\d \(5 training images with it, 9 without\), no better than with shuffled labels\. "
        r"It does not show in this layer, its labels are wrong, or they are too few\. Leave it out\."
    )
    for _ in range(2):  # a resumed run logs it again
        caplog.clear()
        api.run(prepared(user, remove="ink", keep="hair"))
        (told,) = (record.getMessage() for record in caplog.records if record.name == "hansfree.pipeline.diagnosis")
        assert re.fullmatch(doubt, told)
        assert describe_notes(load_results(user / "run"))[-1] == told


@pytest.mark.parametrize(
    ("artifact", "sentence"),
    [
        (
            {"remove": ["inc"]},
            "artifact.remove: 'inc' is no further column of the table, and no artifact that can be inserted by its "
            "name. Did you mean 'ink'? Further columns: ink, hair. Insertable: timestamp, "
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
        prepared(user, **artifact)


def test_what_cannot_be_learned_is_refused(user: Path) -> None:
    mark(user, every=20)
    with pytest.raises(DataError, match="ink: no class has 5 training images with it and 5 without"):
        prepared(user, remove="ink")
    rows = [(*row[:4], "2", "0") for row in read_table(user / "labels.csv")]
    write_table(user / "labels.csv", list(rows), HEADER)
    with pytest.raises(DataError, match="has '2' as ink of"):
        prepared(user, remove="ink")


def test_what_looks_like_the_artifact_cannot_be_kept(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansfree.cavs.joint.LEAST_ANGLE", 90)
    with pytest.raises(DataError, match=r"^sticker \(signal\) lies at \d+\.\d degrees to what is protected"):
        api.run(prepared(user, keep="lsb"))
    assert not (user / "run" / "stages" / "p-clarc.json").exists()
