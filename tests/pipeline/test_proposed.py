"""A table of the labelling page: what was proposed is told before the run, by the doctor, in report and card."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hansfree import api
from hansfree.errors import RunError
from hansfree.evaluation.results import load_results
from hansfree.pipeline.checks import prepare_run
from hansfree.pipeline.config import read_run_file
from hansfree.report.text import describe_notes
from tests.pipeline.user import read_table, write_run, write_table

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


@pytest.mark.parametrize(
    ("marked", "sentence"),
    [
        (8, "Only the 16 marked images were examined; the other 12"),
        (2, "This measures agreement with the labelling page's own proposal, not the truth: 24 of these 28 labels"),
    ],
)
def test_proposed_bits_are_told_everywhere(
    user: Path, monkeypatch: pytest.MonkeyPatch, marked: int, sentence: str
) -> None:
    monkeypatch.setattr("hansfree.api.write_report", lambda out: out / "report.html")
    prepared = prepare_run(read_run_file(write_marked(user, marked=marked)))
    (told,) = (note for name, note in prepared.facts if name == "note" and "artifact labels" in note)
    n = len(read_table(user / "marked.csv"))
    by_hand = 3 * marked + 2  # there are two bright training images with the artifact
    assert told.startswith(f"A person gave {by_hand} of the {n} artifact labels, and the labelling page proposed")
    finished = api.run(prepared)
    assert sentence in finished.sentences[0]
    assert json.loads((user / "run" / "diagnostics.json").read_text())["verdict"] == finished.sentences[0]
    assert told in describe_notes(load_results(user / "run"))  # what report and card print
    with pytest.raises(RunError):  # the same bits, and the doctor would say another thing
        api.run(prepare_run(read_run_file(write_marked(user, marked=marked + 1))))
