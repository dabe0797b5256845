"""Start `hansfree run FILE` again and again, kill it -9 at random moments, then let it end.

A process of its own that imports everything once: each run is a fork of it, made before torch has started a thread.
Prints the kills as JSON: after how many seconds, and what was half written.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import hansfree.api  # noqa: F401  (all that a run needs)
from hansfree import cli
from tests.pipeline.user import half_written


def start(file: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    sys.argv = ["hansfree", "run", file]
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    code = 1
    try:
        cli.main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        os._exit(code)


def main(file: str, folder: Path, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    told: list[dict[str, object]] = []
    while len(told) < kills:
        seconds = rng.uniform(0.1, 2.0) * (1 + len(told) / 2)  # later and later, as each run gets a little further
        pid = start(file)
        until = time.monotonic() + seconds
        ended = 0
        while not ended and time.monotonic() < until:
            ended, _ = os.waitpid(pid, os.WNOHANG)
            time.sleep(0.01)
        if ended:
            break
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        told.append({"seconds": seconds, "half": [str(path) for path in half_written(folder)]})
    _, status = os.waitpid(start(file), 0)
    print(json.dumps({"kills": told, "code": os.waitstatus_to_exitcode(status)}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
