"""The peak of anonymous memory while the cache fills and the path is trained, for more and more images."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.speed.measures import Measure, Target, ratio
from benchmarks.speed.race import Outcome, Race
from benchmarks.speed.subject import Subject
from hansfree._internal.progress import Progress
from hansfree.errors import HansfreeError

STATUS = Path("/proc/self/status")  # tells RssAnon, on Linux only


class MemoryRace(Race, name="memory"):
    """A process of its own for each number of images: pass onto disk, CAV, all strengths with validation.

    The network is the demo's, whatever the models: what could grow is kept per image, and a small network makes
    thousands of images quick.
    """

    per_model = False

    def takes(self, subject: Subject) -> bool:
        """Only Linux tells the anonymous part of a process's memory."""
        return STATUS.exists()

    def measure(self, subject: Subject, progress: Progress) -> Outcome:
        """Take the peak of every number of images once per turn."""
        numbers = subject.sizes.remembered
        work = [n for _ in range(subject.sizes.turns) for n in numbers]
        peaks: dict[int, list[float]] = {n: [] for n in numbers}
        for n in progress(work, total=len(work), label="memory"):
            peaks[n].append(_peak(n))
        few = numbers[0]
        ratios = [ratio(f"memory_{n}_over_{few}", peaks[n], peaks[few], Target("at most", 1.1)) for n in numbers[1:]]
        return Outcome(
            (*ratios, *(Measure(f"memory_peak_{n}", tuple(peaks[n]), "bytes") for n in numbers)),
            {"images": numbers, "model": "demo"},
            ("memory: the anonymous part (RssAnon); what the system keeps of files it can drop at any time.",),
        )


_ROOT = Path(__file__).parents[3]  # where `benchmarks` can be imported


def _peak(images: int) -> float:
    with TemporaryDirectory(prefix="hansfree-bench-") as folder:
        out = Path(folder) / "peak.json"
        command = [sys.executable, "-m", "benchmarks.speed.peak", str(images), str(out)]
        # With a fixed threshold malloc gives large blocks back at once: what is measured is what the program holds.
        # (By default it keeps up to some 60 MB of them, now more and now less, however many images there are.)
        environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
        done = subprocess.run(command, env=environment, cwd=_ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise HansfreeError(f"The process that measures memory with {images} images failed: {last}")
        return float(json.loads(out.read_text(encoding="utf-8")))
