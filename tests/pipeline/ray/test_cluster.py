"""A real cluster of two nodes, one of which dies in the middle: the same files as on one machine."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hansfree import api
from hansfree.cli import app
from hansfree.corrections.training import head_loop
from hansfree.pipeline.checks import prepare_run
from hansfree.pipeline.config import read_run_file
from tests.pipeline.user import half_written, write_run

SECONDS = 120  # after which nothing will come any more
STRENGTHS = [0.1, 1, 10]
RUN: dict[str, Any] = {
    "artifact": {"insert": "lsb"},
    "correction": {"methods": ["vanilla", "rr-clarc"], "strengths": {"rr-clarc": STRENGTHS}, "repeats": 2},
}
FURTHER = {**RUN, "correction": {**RUN["correction"], "further_cavs": ["pair"]}}


@pytest.fixture(autouse=True, scope="module")
def _quick(user: Path) -> Iterator[None]:
    """No figures; as in the workers, no two heads are trained together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hansfree.api.write_report", lambda out: out / "report.html")
        patch.setattr(head_loop, "_STACKED_BYTES", 1)
        yield


@pytest.fixture(scope="module")
def local(user: Path) -> Path:
    """The run on one machine, and further CAVs added to it."""
    api.run(prepare_run(read_run_file(write_run(user / "local.yaml", out="local/run", **RUN))))
    api.run(prepare_run(read_run_file(write_run(user / "local.yaml", out="local/run", **FURTHER))))
    return user / "local" / "run"


def on_ray(cluster: Any, file: Path) -> Path:
    done = CliRunner().invoke(app, ["run", str(file), "--engine", "ray", "--address", cluster.address])
    assert done.exit_code == 0, done.output
    return file.parent / file.stem / "run"


def log(run: Path, key: str, *, spread: bool = False) -> list[str]:
    lines = map(json.loads, (run / "log.jsonl").read_text().splitlines())
    return [line[key] for line in lines if key in line and ("node" in line or not spread)]


def check_same(run: Path, local: Path) -> None:
    """All files and numbers are the same, and workers made each of them once."""
    weights = [f"corrected/{name}.safetensors" for name in ("rr-clarc", "rr-clarc@pair", "vanilla")]
    for file in ("results.csv", "cav-pair.safetensors", *weights):
        assert (run / file).read_bytes() == (local / file).read_bytes()
    shards = [
        {path.relative_to(each): path.read_bytes() for path in each.rglob("shard-*.safetensors")}
        for each in (run, local)
    ]
    assert shards[0] == shards[1]
    assert len(set(log(run, "shard"))) == len(log(run, "shard")) == len(shards[0])
    assert not list(half_written(run))
    assert not list(run.glob(".joined-by-*"))


def apart(*methods: str) -> list[str]:
    """Return the stages of a method that workers make one by one."""
    return [f"{name} {kind}" for name in methods for kind in ("strengths 0", "strengths 1", "strengths 2")]


def test_two_nodes_make_the_files_of_one_machine(user: Path, local: Path, cluster: Any) -> None:
    """Strengths of large heads, seeds, and a further CAV of pairs, which is fitted before anybody corrects along it."""
    api.run(prepare_run(read_run_file(write_run(user / "two.yaml", out="two/run", **RUN))))  # begun on one machine
    run = on_ray(cluster, write_run(user / "two.yaml", out="two/run", **FURTHER))
    check = [*apart("rr-clarc@pair"), "rr-clarc@pair", "rr-clarc@pair seed 1"]
    assert sorted(log(run, "stage", spread=True)) == sorted(check)
    stages = log(run, "stage")
    assert stages.index("cav pair") < min(map(stages.index, check)), "on the first machine, before the others begin"
    assert (run / "results.csv").read_bytes() == (local / "results.csv").read_bytes()


def test_a_node_that_dies_costs_its_unfinished_shards_only(user: Path, local: Path, cluster: Any) -> None:
    (user / "play").touch()
    stuck, written = user / "stuck", user / "written"
    times: list[int] = []

    def kill_when_stuck() -> None:
        until = time.monotonic() + SECONDS
        while not stuck.exists() and time.monotonic() < until:
            time.sleep(0.05)
        times.append(Path(written.read_text()).stat().st_mtime_ns)
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)

    killer = threading.Thread(target=kill_when_stuck)
    killer.start()
    run = on_ray(cluster, write_run(user / "dead.yaml", out="dead/run", **FURTHER))
    killer.join()
    assert times == [Path(written.read_text()).stat().st_mtime_ns], "what the node had written was not made again"
    check_same(run, local)
    assert sorted(log(run, "stage")) == sorted(log(local, "stage"))
    seeds = [f"{name} seed 1" for name in ("vanilla", "rr-clarc", "rr-clarc@pair")]
    spread = {"original", "vanilla", "rr-clarc", "rr-clarc@pair", *seeds, *apart("rr-clarc", "rr-clarc@pair")}
    assert set(log(run, "stage", spread=True)) == spread
