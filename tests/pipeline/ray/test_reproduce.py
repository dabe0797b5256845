"""The paper's experiments on a cluster: the same page as on one machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hansfree.errors import UnknownNameError
from hansfree.pipeline.ray import open_executor
from hansfree_paper.runner import reproduce
from hansfree_paper.subjects import Plan
from tests.conftest import Call
from tests.pipeline.studies import PLAN, Single

NAME = "q3"  # plain methods, corrections of one class, masks, and a reference


def test_workers_train_what_the_experiment_asks_for_and_the_page_is_the_same(cluster: Any, tmp_path: Path) -> None:
    subjects = [(Single(artifact="lsb"), Plan(**PLAN))]
    local = reproduce(NAME, subjects, out=tmp_path / "local", work=tmp_path / "local" / "work")
    with open_executor("ray", address=cluster.address) as executor:
        page = reproduce(NAME, subjects, out=tmp_path, work=tmp_path / "work", executor=executor)
    for file in (page, page.with_suffix(".csv")):
        assert file.read_bytes() == (local.parent / file.name).read_bytes()
    (log,) = (tmp_path / "work" / "runs").glob("*/log.jsonl")
    lines = [line for line in map(json.loads, log.read_text().splitlines()) if "node" in line]
    assert {line["shard"].split()[0] for line in lines if "shard" in line} == {
        *("train", "val_clean", "val_biased", "test_clean", "test_biased")
    }
    plain = {"vanilla", "rrr", "p-clarc", "a-clarc", "rr-clarc"}
    assert {line["stage"] for line in lines if "stage" in line} == {*plain, "rrr class-0", "rr-clarc class-0"}


def test_an_unknown_engine_is_refused_before_any_work(call: Call, tmp_path: Path) -> None:
    code, _, err = call("reproduce", "q1", "--engine", "rai", "--out", tmp_path / "out")
    assert (code, "engine is 'rai'. Did you mean 'ray'?" in err) == (UnknownNameError.exit_code, True)
    assert not (tmp_path / "out").exists()
