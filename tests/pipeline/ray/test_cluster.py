"""A real cluster of two nodes, one of which dies in the middle: the same files as on one machine."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from hansfree import api
from hansfree.cli import app
from hansfree.pipeline.checks import prepare_run
from hansfree.pipeline.config import read_run_file
from tests.pipeline.ray.conftest import SHARDS
from tests.pipeline.user import half_written, write_run

SECONDS = 120  # after which nothing will come any more


def shards(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("shard-*"))}


def log(run: Path, key: str) -> list[str]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [line[key] for line in lines if key in line]


def on_ray(cluster: Any, file: Path) -> Result:
    return CliRunner().invoke(app, ["run", str(file), "--engine", "ray", "--address", cluster.address])


def check_same(run: Path, local: Path) -> None:
    """All files and numbers are the same, and workers made each of them once."""
    assert (run / "results.csv").read_bytes() == (local / "results.csv").read_bytes()
    assert shards(run) == shards(local)
    assert len(set(log(run, "shard"))) == len(log(run, "shard")) == SHARDS
    assert sorted(log(run, "stage")) == sorted(log(local, "stage"))
    assert len(log(run, "node")) == SHARDS + 4
    assert not list(half_written(run))
    assert not list(run.glob(".joined-by-*"))


@pytest.fixture(scope="module")
def local(user: Path) -> Path:
    """The run on one machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hansfree.api.write_report", lambda out: out / "report.html")
        api.run(prepare_run(read_run_file(write_run(user / "local.yaml", out="local/run"))))
    return user / "local" / "run"


def test_two_nodes_make_the_files_of_one_machine(user: Path, local: Path, cluster: Any) -> None:
    done = on_ray(cluster, write_run(user / "two.yaml", out="two/run"))
    assert done.exit_code == 0, done.output
    check_same(user / "two" / "run", local)


def test_strengths_of_large_heads_seeds_and_cavs_are_spread_with_the_same_results(
    user: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hansfree.corrections.training.head_loop._STACKED_BYTES", 1)
    (user / "large").touch()
    more = {"methods": ["vanilla", "rr-clarc"], "strengths": {"rr-clarc": [0.1, 1, 10]}, "repeats": 2}
    more |= {"further_cavs": "svm"}
    api.run(prepare_run(read_run_file(write_run(user / "one.yaml", out="one/run", correction=more))))
    done = on_ray(cluster, write_run(user / "spread.yaml", out="spread/run", correction=more))
    (user / "large").unlink()
    assert done.exit_code == 0, done.output
    run, alone = user / "spread" / "run", user / "one" / "run"
    directions = ("rr-clarc", "rr-clarc@svm")
    apart = [f"{name} strengths {number}" for name in directions for number in range(3)]
    assert sorted(log(run, "stage")) == sorted([*log(alone, "stage"), *apart])
    assert {"rr-clarc seed 1", "rr-clarc@svm seed 1", "vanilla seed 1"} < set(log(alone, "stage"))
    assert len(log(run, "node")) == SHARDS + len(apart) + 7
    for file in ("results.csv", *(f"corrected/{name}.safetensors" for name in directions)):
        assert (run / file).read_bytes() == (alone / file).read_bytes()


def test_a_further_cav_of_pairs_is_made_before_anybody_corrects_along_it(user: Path, cluster: Any) -> None:
    both: dict[str, Any] = {"artifact": {"insert": "lsb"}, "correction": {"methods": ["p-clarc", "rr-clarc"]}}
    alone, run = user / "cavs-one" / "run", user / "cavs-two" / "run"
    file = write_run(user / "cavs-two.yaml", out="cavs-two/run", **both)
    api.run(prepare_run(read_run_file(file)))  # begun without further CAVs, on one machine
    both["correction"]["further_cavs"] = ["pair", "ridge"]
    api.run(prepare_run(read_run_file(write_run(user / "cavs-one.yaml", out="cavs-one/run", **both))))
    done = on_ray(cluster, write_run(file, out="cavs-two/run", **both))
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    spread = [line["stage"] for line in lines if "node" in line and "stage" in line]
    assert sorted(spread) == ["p-clarc@pair", "p-clarc@ridge", "rr-clarc@pair", "rr-clarc@ridge"]
    told = log(run, "stage")
    assert told.index("cav pair") < min(map(told.index, spread)), "on the first machine, before the others begin"
    for name in ("results.csv", "cav-pair.safetensors", *(f"corrected/{name}.safetensors" for name in spread)):
        assert (run / name).read_bytes() == (alone / name).read_bytes()


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
    done = on_ray(cluster, write_run(user / "dead.yaml", out="dead/run"))
    killer.join()
    assert done.exit_code == 0, done.output
    run = user / "dead" / "run"
    assert times == [Path(written.read_text()).stat().st_mtime_ns], "what the node had written was not made again"
    check_same(run, local)
