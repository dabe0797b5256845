"""Run by ``test_kill``: fill a cache, and stall in the middle until killed. Usage: killed.py FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

from hansfree.activations import collect_activations
from tests.activations.samples import Pictures, small_net

IMAGES, STALL_AT = 600, 400

if __name__ == "__main__":
    data = Pictures(IMAGES, stall_at=STALL_AT)
    collect_activations(small_net(), "features.4", data, folder=Path(sys.argv[1]), batch_size=32)
