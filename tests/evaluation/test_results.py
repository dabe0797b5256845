"""The table of results: the same bytes for the same rows, read back as written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hansfree.cavs.quality import CAVQuality
from hansfree.errors import RunError
from hansfree.evaluation.results import (
    COLUMNS,
    Row,
    read_rows,
    row_of_quality,
    rows_of,
    write_table,
)
from hansfree.metrics import NotAvailable, Score


def test_what_is_unknown_is_a_line_without_value_and_no_score(tmp_path: Path) -> None:
    row = Row(experiment="e", method="vanilla", metric="accuracy_clean", value=0.5, n=90)
    unknown = [NotAvailable("accuracy_biased", 7, "too few"), NotAvailable("sensitivity_biased", 0, "none", 1)]
    write_table(tmp_path / "results.csv", [row], unknown=unknown)
    assert (tmp_path / "results.csv").read_text().splitlines()[2:] == [
        ",,,,,,,,,test,,,accuracy_biased,,,7",
        ",,,,,,,,,test,,1,sensitivity_biased,,,0",
    ]
    assert read_rows(tmp_path / "results.csv") == [row]


@pytest.mark.parametrize(("artifact", "is_other"), [("lsb", True), ("with", False), ("without", False), (None, False)])
def test_scores_of_other_artifacts(artifact: str | None, is_other: bool) -> None:
    row = Row(experiment="e", method="m", metric="flip_rate", value=0.5, artifact=artifact)
    assert row.is_of_other_artifact == is_other


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    options = {"cav": "signal", "target": "expected", "norm": "squared", "strength": 1e-5, "chosen": 0, "seed": 1}
    place = {"epoch": 3, "split": "val", "artifact": "with", "group": 0}
    rows = [
        Row(experiment="demo", method="original", metric="accuracy_clean", value=0.1 + 0.2, chosen=1, seed=0, n=900),
        Row(experiment='a, "b"', method="rr-clarc", metric="tcav", value=0.0, stderr=0.0, n=0, **options, **place),
    ]
    path = tmp_path / "results.csv"
    write_table(path, rows[:1])
    write_table(path, rows)
    assert path.read_bytes() == (
        b"experiment,method,cav,target,norm,strength,chosen,seed,epoch,split,artifact,group,metric,value,stderr,n\n"
        b"demo,original,,,,,1,0,,,,,accuracy_clean,0.3,,900\n"
        b'"a, ""b""",rr-clarc,signal,expected,squared,1e-05,0,1,3,val,with,0,tcav,0,0,0\n'
    )
    read = read_rows(path)
    assert read == [replace(rows[0], value=0.3), rows[1]]
    assert [type(read[1].strength), type(read[1].chosen), type(read[1].n)] == [float, int, int]


@pytest.mark.parametrize(("column", "cell"), [("value", ""), ("value", "good"), ("n", "1.5"), ("strength", "weak")])
def test_a_cell_that_cannot_be_read_is_named(tmp_path: Path, column: str, cell: str) -> None:
    cells = dict.fromkeys(COLUMNS, "") | {"method": "m", "value": "0.5"} | {column: cell}
    path = tmp_path / "results.csv"
    path.write_text(",".join(COLUMNS) + "\n" + ",".join(cells.values()) + "\n")
    with pytest.raises(RunError, match=f"line 2: {column} is '{cell}', not of type"):
        read_rows(path)


def test_scores_and_qualities_become_rows() -> None:
    scores = [Score("accuracy_clean", 0.9, 0.01, 100), Score("accuracy_clean", 0.8, 0.02, 50, 1, "with")]
    first, second = rows_of(scores, experiment="demo", method="vanilla", split="test")
    assert (first.metric, first.value, first.stderr, first.n, first.group) == ("accuracy_clean", 0.9, 0.01, 100, None)
    assert (second.group, second.artifact, second.split, second.strength) == (1, "with", "test", None)
    row = row_of_quality("cav_auc", CAVQuality(0.75, 0.1, 40), experiment="demo", method="cav:signal")
    assert (row.metric, row.value, row.stderr, row.n) == ("cav_auc", 0.75, 0.1, 40)
