"""The small user, and a cluster of two nodes that only this machine can reach."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.user import COUNTS, NET, make_user

# Both are read when Ray is imported. The second lets it keep to the loopback address on Linux too.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"

# Two shards of training images, and one of each other set.
MANY = {**COUNTS, ("train", 0, 0): 90, ("train", 0, 1): 80, ("train", 1, 0): 140, ("train", 1, 1): 10}
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "node_ip_address": "127.0.0.1"}

# In a worker: heads count as too large to be trained together, in all runs; where `play` lies beside the file, the
# doomed node writes one shard, and is stuck before its second, and the other waits with its first until then.
STAGED = """
import os, time
from pathlib import Path

HERE, NODE = Path(__file__).parent, os.environ.get("HANSFREE_TEST_NODE")
if NODE:
    from hansfree.corrections.training import head_loop

    head_loop._STACKED_BYTES = 1
if NODE and (HERE / "play").exists():
    from hansfree.activations import cache

    write, written = cache.write_shard, []

    def play(path, shard):
        if NODE == "doomed" and written:
            (HERE / "stuck").touch()
            time.sleep(600)
        while NODE != "doomed" and not (HERE / "stuck").exists():
            time.sleep(0.05)
        write(path, shard)
        written.append(path)
        if NODE == "doomed":
            (HERE / "written").write_text(str(path))

    cache.write_shard = play
"""


def node(name: str) -> dict[str, Any]:
    """Return the options of a node whose workers know its name."""
    return {**NODE, "env_vars": {"HANSFREE_TEST_NODE": name}}


@pytest.fixture(scope="session")
def user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images, a model and the play."""
    root = make_user(tmp_path_factory.mktemp("own") / "user", MANY)
    (root / "net.py").write_text(NET + STAGED)
    return root


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Two nodes of one CPU each; a test may end the second."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"include_dashboard": False, **node("head")})
    try:
        made.add_node(**node("doomed"))
        yield made
    finally:
        made.shutdown()
