"""What is told about the images before a run starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hansfree.pipeline.checks import prepare_run
from hansfree.pipeline.config import read_run_file
from tests.pipeline.user import read_table, write_run, write_table


def told(user: Path, **sections: Any) -> dict[str, str]:
    return dict(prepare_run(read_run_file(write_run(user / "run.yaml", **sections))).facts)


def test_how_uneven_the_classes_are_is_told_where_they_are_balanced(user: Path) -> None:
    rows = read_table(user / "labels.csv")
    write_table(user / "labels.csv", [row for row in rows if row[1:] != ("bright", "1", "train")])
    assert "balanced" not in told(user)
    assert told(user, correction={"balanced": True})["balanced"] == (
        "every class has the same weight: the largest is 'dark' with 28 training images, the smallest 'bright' with 26 "
        "training images"
    )
