"""What a benchmark measures: samples, targets, outcomes, and the file and figure that hold them."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, Literal

import torch
from pydantic import TypeAdapter

import hansfree
from benchmarks.speed.setup import Sizes, Subject
from hansfree._internal.files import write_json, written_atomically
from hansfree._internal.hashing import fingerprint
from hansfree._internal.progress import Progress
from hansfree._internal.registry import Registered
from hansfree.errors import RunError
from hansfree.report.figures import ALARM, INK, OTHER_STYLE, new_figure, quiet_axes

Unit = Literal["ratio", "slope", "images/s", "seconds", "bytes"]


@dataclass(frozen=True)
class Target:
    """The limit for a median."""

    kind: Literal["at most", "at least"]
    limit: float

    def is_met(self, value: float) -> bool:
        """Return whether a value keeps the limit."""
        return value <= self.limit if self.kind == "at most" else value >= self.limit

    def verdict(self, value: float) -> str:
        """Return the limit, and whether a value keeps it, in words."""
        sign = "<=" if self.kind == "at most" else ">="
        return f"{sign} {self.limit:g}: {'met' if self.is_met(value) else 'not met'}"


@dataclass(frozen=True)
class Measure:
    """One sample per turn. Both parts of a ratio come from the same turn, under the same load."""

    name: str  # "resnet18.path_over_forward"
    samples: tuple[float, ...]
    unit: Unit = "ratio"
    target: Target | None = None

    @property
    def value(self) -> float:
        """The median."""
        return median(self.samples)

    @property
    def low(self) -> float:
        """The smallest sample."""
        return min(self.samples)

    @property
    def high(self) -> float:
        """The largest sample."""
        return max(self.samples)


def ratio(name: str, ours: Sequence[float], theirs: Sequence[float], target: Target | None = None) -> Measure:
    """Return ours over theirs, turn by turn."""
    return Measure(name, tuple(one / other for one, other in zip(ours, theirs, strict=True)), target=target)


def rate(name: str, images: int, seconds: Sequence[float]) -> Measure:
    """Return images per second, turn by turn."""
    return Measure(name, tuple(images / one for one in seconds), "images/s")


_LIBRARIES = ("hansfree", "torch", "torchvision", "numpy", "scikit-learn", "zennit")


def machine_facts() -> dict[str, str | int]:
    """Return processor, memory, threads, system, versions, and a hash of hansfree's own code."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "memory_gb": _memory_gb(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in _LIBRARIES},
        "code": _hash_code(),
        "precision": "float32",
    }


def commit() -> str | None:
    """Return the commit of the checkout; None without git."""
    home = Path(__file__).parent
    try:
        subprocess.run(["git", "ls-files", "--error-unmatch", __file__], cwd=home, capture_output=True, check=True)
        done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=home, capture_output=True, check=True, text=True)
    except (OSError, subprocess.CalledProcessError):  # no git, or an installed package
        return None
    return done.stdout.strip()


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gb() -> int:
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return 0  # not available on Windows
    return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9)


def _hash_code() -> str:
    root = Path(hansfree.__file__).parent
    files = sorted(root.rglob("*.py"))
    return fingerprint(*(text for path in files for text in (str(path.relative_to(root)), path.read_text("utf-8"))))


@dataclass(frozen=True)
class Outcome:
    """The result of a benchmark."""

    measures: tuple[Measure, ...]
    facts: dict[str, Any] = field(default_factory=dict)  # amounts
    notes: tuple[str, ...] = ()  # extrapolations, and other remarks for the reader


class Benchmark(Registered, ABC):
    """Several ways to the same result, timed in turns. A subclass implements :meth:`measure`."""

    kind = "benchmark"
    per_model: ClassVar[bool] = True  # False: once for all models

    def takes(self, subject: Subject) -> bool:
        """Return whether the benchmark applies to this model."""
        return True

    @abstractmethod
    def measure(self, subject: Subject, progress: Progress) -> Outcome:
        """Time all sides in turns, and compare within each turn."""


class Record:
    """The results so far: each measure with its range under its name; ``about`` holds the rest.

    Args:
        again: Start over if the file is of another machine, code or size; otherwise that is an error.
    """

    def __init__(self, path: Path, sizes: Sizes, command: Sequence[str], *, again: bool = False) -> None:
        self.path, self.command = path, list(command)
        self.conditions: dict[str, Any] = {"machine": machine_facts(), "sizes": _plain(sizes)}
        self.outcomes: dict[str, tuple[Outcome, float]] = {}
        if path.exists():
            self._resume(again)

    def __contains__(self, key: str) -> bool:
        return key in self.outcomes

    def add(self, key: str, outcome: Outcome, seconds: float) -> None:
        """Add the result of a benchmark, and write the file."""
        self.outcomes[key] = outcome, seconds
        content: dict[str, Any] = {}
        for measure in self.measures:
            content |= {
                measure.name: measure.value,
                f"{measure.name}.low": measure.low,
                f"{measure.name}.high": measure.high,
            }
        benchmarks = {name: {"seconds": seconds, **asdict(found)} for name, (found, seconds) in self.outcomes.items()}
        about = {"command": self.command, "commit": commit(), **self.conditions, "benchmarks": benchmarks}
        write_json(self.path, content | {"about": about})

    @property
    def measures(self) -> list[Measure]:
        """All measures of all benchmarks so far."""
        return [measure for outcome, _ in self.outcomes.values() for measure in outcome.measures]

    @property
    def notes(self) -> list[str]:
        """Remarks on the numbers."""
        return [note for outcome, _ in self.outcomes.values() for note in outcome.notes]

    def _resume(self, again: bool) -> None:
        about = read_record(self.path)
        differing = [
            name
            for kind in ("machine", "sizes")
            for name in self.conditions[kind].keys() | about[kind].keys()
            if self.conditions[kind].get(name) != about[kind].get(name)
        ]
        if not differing:
            self.outcomes = {key: (_outcome(entry), entry["seconds"]) for key, entry in about["benchmarks"].items()}
        elif not again:
            raise RunError(
                f"{self.path} was measured under other conditions ({', '.join(sorted(differing))} differ), so this run "
                "cannot resume. Choose another file with --out, or start over with --again."
            )


def read_record(path: Path) -> dict[str, Any]:
    """Return the ``about`` part of a record; raise an error for any other file."""
    try:
        about = json.loads(path.read_text(encoding="utf-8"))["about"]
        if {"machine", "sizes", "benchmarks"} <= about.keys():
            return dict(about)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{path} is not a speed record ({type(error).__name__}: {error}).") from error
    raise RunError(f"{path} is a record of an older version. Choose another file with --out, or remove it.")


def read_measures(path: Path) -> dict[str, Measure]:
    """Return all measures of a file by name."""
    entries = read_record(path)["benchmarks"].values()
    return {measure.name: measure for entry in entries for measure in _outcome(entry).measures}


def _plain(sizes: Sizes) -> dict[str, Any]:
    """Return the sizes as JSON, without the models: results are stored per model."""
    content: dict[str, Any] = json.loads(json.dumps(asdict(sizes)))
    del content["models"]
    return content


def _outcome(entry: dict[str, Any]) -> Outcome:
    return TypeAdapter(Outcome).validate_python(entry)


def draw_ratios(path: Path, measures: Sequence[Measure]) -> None:
    """Write a PNG of all ratios with their ranges and targets."""
    shown = [measure for measure in measures if measure.unit == "ratio"][::-1]  # the first on top
    figure = new_figure(height=1.2 + 0.28 * len(shown))
    (axes,) = quiet_axes(figure)
    places = range(len(shown))
    colour, marker = OTHER_STYLE
    axes.hlines(places, [one.low for one in shown], [one.high for one in shown], color=colour, linewidth=2)
    axes.plot([one.value for one in shown], places, marker, color=colour, linestyle="none", label="median and range")
    aims = [(one.target.limit, place) for place, one in zip(places, shown) if one.target is not None]
    if aims:
        axes.plot(*zip(*aims), "|", color=ALARM, markersize=14, markeredgewidth=2, linestyle="none", label="target")
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(list(places), [one.name for one in shown])
    axes.set_xlabel("ratio, both sides in turns in one run")
    axes.legend(loc="best", frameon=False, fontsize=9)
    with written_atomically(path) as temporary:
        figure.savefig(temporary, dpi=120)
