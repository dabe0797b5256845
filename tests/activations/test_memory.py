"""The cache on disk does not stand in memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.activations.measured import COUNTS


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads RssAnon, which only Linux tells")
def test_peak_memory_does_not_grow_with_the_images(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.activations.measured", str(tmp_path)]
    # With a fixed threshold malloc gives large blocks back at once: what is measured is what the program holds.
    # (By default it keeps up to some 60 MB of them, now more and now less, however many images there are.)
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    few, many = json.loads(done.stdout)
    one = 8 * 24 * 24 * 4
    cache = (COUNTS[1] - COUNTS[0]) * one
    on_disk = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert on_disk > 3 * cache  # the layer's output, the value and the tangent
    assert many - few < 0.1 * cache
