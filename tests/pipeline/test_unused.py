"""What a run had no use for is told, so that its report does not list it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hansfree.pipeline.checks import prepare_run
from hansfree.pipeline.config import read_run_file
from hansfree.pipeline.identity import unused_keys
from tests.pipeline.user import COUNTS, make_user, read_table, write_run, write_table

PATCH = {"artifact.file", "artifact.place", "artifact.scale", "artifact.angle"}


def unused(user: Path, **sections: Any) -> set[str]:
    prepared = prepare_run(read_run_file(write_run(user / "run.yaml", **sections)))
    return set(unused_keys(prepared.run, prepared.images))


def test_shares_count_where_the_split_is_drawn(tmp_path: Path) -> None:
    """As many images as a drawn split needs for two classes."""
    user = make_user(tmp_path / "user", {kind: 8 * n for kind, n in COUNTS.items()})
    assert unused(user) == {"data.shares", "artifact.share", *PATCH}
    rows = read_table(user / "labels.csv")
    write_table(user / "labels.csv", [row[:3] for row in rows], ("image", "label", "artifact"))
    assert unused(user) == {"artifact.share", *PATCH}


def test_a_column_that_is_missing_tells_nothing(user: Path) -> None:
    rows = read_table(user / "labels.csv")
    write_table(user / "labels.csv", [(*row[:2], row[3]) for row in rows], ("image", "label", "split"))
    found = unused(user, artifact={"insert": "timestamp"})
    assert "artifact.column" in found
    assert "artifact.share" not in found
