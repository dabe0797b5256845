"""A table of the labelling page: what was proposed is told before the run, by the doctor, in report and card."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hansfree.errors import RunError
from hansfree.report.reading import load_results
from hansfree.runfile import carry_out, open_run_file, read_run_file
from tests.runfile.examples import read_table, write_run, write_table

FEW = {"methods": ["vanilla"], "strengths": {}}


def write_marked(user: Path, *, marked: int) -> Path:
    """Give the table a column of marks, on so many training images of each kind; return the run file."""
    seen: dict[tuple[str, ...], int] = {}
    rows: list[tuple[object, ...]] = []
    for image, label, artifact, part in read_table(user / "labels.csv"):
        kind = (label, artifact, part)
        seen[kind] = seen.get(kind, 0) + 1
        rows.append((image, label, artifact, part, int(part == "train" and seen[kind] <= marked)))
    write_table(user / "marked.csv", rows, ("image", "label", "artifact", "split", "artifact_marked"))
    return write_run(user / "run.yaml", data={"table": "marked.csv"}, correction=FEW)


@pytest.mark.parametrize(
    ("marked", "sentence"),
    [
        (8, "Only the 16 marked images were examined; the other 12"),
        (2, "This measures agreement with the labelling page's own proposal, not the truth: 24 of these 28 bits"),
    ],
)
def test_proposed_bits_are_told_everywhere(
    user: Path, monkeypatch: pytest.MonkeyPatch, marked: int, sentence: str
) -> None:
    monkeypatch.setattr("hansfree.runfile.running.write_report", lambda out: out / "report.html")
    opened = open_run_file(read_run_file(write_marked(user, marked=marked)))
    (told,) = (note for name, note in opened.facts if name == "note" and "artifact bits" in note)
    n = len(read_table(user / "marked.csv"))
    by_hand = 3 * marked + 2  # there are two bright training images with the artifact
    assert told.startswith(f"Of the {n} artifact bits, a person marked {by_hand} and the labelling page proposed")
    finished = carry_out(opened)
    assert sentence in finished.sentences[0]
    assert json.loads((user / "run" / "doctor.json").read_text())["verdict"] == finished.sentences[0]
    assert told in load_results(user / "run").notes()  # what report and card print
    with pytest.raises(RunError):  # the same bits, and the doctor would say another thing
        carry_out(open_run_file(read_run_file(write_marked(user, marked=marked + 1))))
