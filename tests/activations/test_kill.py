"""A pass that is killed for real goes on in another process, and ends with the same bytes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from hansfree.activations import collect_activations
from tests.activations.killed import IMAGES, STALL_AT
from tests.activations.samples import Pictures, small_net


def test_resume_after_a_kill(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    command = [sys.executable, "-m", "tests.activations.killed", str(folder)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not list(folder.rglob("shard-00000000-*.safetensors")):
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert len(list(folder.rglob("shard*"))) == 1  # it stalls within the second

    data = Pictures(IMAGES)
    resumed = collect_activations(small_net(), "features.4", data, folder=folder, batch_size=32)
    assert data.reads == Counter([0, *range(256, IMAGES)])
    assert 256 < STALL_AT < IMAGES
    whole = collect_activations(small_net(), "features.4", Pictures(IMAGES), folder=tmp_path / "whole", batch_size=32)
    assert resumed.folder is not None
    assert whole.folder is not None
    assert resumed.folder.name == whole.folder.name  # the key is the same in every process
    for path in whole.folder.iterdir():
        assert (resumed.folder / path.name).read_bytes() == path.read_bytes()
