"""The script that draws a table's split anew: parts of the same sizes, no group in two of them."""

from __future__ import annotations

import csv
import runpy
import sys
from collections import Counter
from io import StringIO
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "comparison" / "redraw_split.py"
SPLITS = ["train"] * 60 + ["val"] * 20 + ["test"] * 20


@pytest.mark.parametrize("grouped", [False, True])
def test_parts_keep_their_sizes_and_groups_stay_together(
    tmp_path: Path, grouped: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"image": f"{i}.png", "label": "AB"[i % 2], "split": part, "ruler": str(i % 4 // 2)}
        | ({"group": f"patient {i // 4}"} if grouped else {})
        for i, part in enumerate(SPLITS)
    ]
    table = tmp_path / "labels.csv"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(table), "1"])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    redrawn = list(csv.DictReader(StringIO(capsys.readouterr().out)))
    assert Counter(row["split"] for row in redrawn) == Counter(SPLITS)
    assert [row["split"] for row in redrawn] != SPLITS
    assert [row | {"split": ""} for row in redrawn] == [row | {"split": ""} for row in rows]
    if grouped:
        assert len({(row["group"], row["split"]) for row in redrawn}) == 25
