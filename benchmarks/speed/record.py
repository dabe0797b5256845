"""``bench.json``: written after every race, so that a stopped benchmark goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.speed.machine import commit, machine_facts
from benchmarks.speed.measures import Measure
from benchmarks.speed.race import Outcome
from benchmarks.speed.sizes import Sizes
from hansfree._internal.files import write_json
from hansfree.errors import RunError


class Record:
    """What was found so far: flat, each measure under its name, its range beside it; ``about`` holds the rest.

    Args:
        again: Start afresh where the file is of another machine, code or size; otherwise that is an error.
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
        """Keep what a race found, on disk too."""
        self.outcomes[key] = outcome, seconds
        content: dict[str, Any] = {}
        for measure in self.measures:
            content |= {
                measure.name: measure.value,
                f"{measure.name}.low": measure.low,
                f"{measure.name}.high": measure.high,
            }
        races = {name: _entry(outcome, seconds) for name, (outcome, seconds) in self.outcomes.items()}
        about = {"command": self.command, "commit": commit(), **self.conditions, "races": races}
        write_json(self.path, content | {"about": about})

    @property
    def measures(self) -> list[Measure]:
        """All measures of all races so far."""
        return [measure for outcome, _ in self.outcomes.values() for measure in outcome.measures]

    @property
    def notes(self) -> list[str]:
        """What a reader must know beside the numbers."""
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
            self.outcomes = {key: _outcome(entry) for key, entry in about["races"].items()}
        elif not again:
            raise RunError(
                f"{self.path} was measured under other conditions ({', '.join(sorted(differing))} differ), so this run "
                "cannot go on from it. Give another file with --out, or start it afresh with --again."
            )


def read_record(path: Path) -> dict[str, Any]:
    """Return what a file says about its races; anything that is no such file is an error."""
    try:
        about = json.loads(path.read_text(encoding="utf-8"))["about"]
        if {"machine", "sizes", "races"} <= about.keys():
            return dict(about)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{path} cannot be read as the result of a bench ({type(error).__name__}: {error}).") from error
    raise RunError(f"{path} is the result of an older bench. Give another file with --out, or remove it.")


def read_measures(path: Path) -> dict[str, Measure]:
    """Return all measures of a file by name."""
    entries = read_record(path)["races"].values()
    return {measure.name: measure for entry in entries for measure in _outcome(entry)[0].measures}


def _plain(sizes: Sizes) -> dict[str, Any]:
    """Return the sizes as JSON has them; the models are left out, for each has races of its own."""
    content: dict[str, Any] = json.loads(json.dumps(asdict(sizes)))
    del content["models"]
    return content


def _entry(outcome: Outcome, seconds: float) -> dict[str, Any]:
    return {
        "seconds": seconds,
        "facts": outcome.facts,
        "notes": outcome.notes,
        "measures": [measure.as_json() for measure in outcome.measures],
    }


def _outcome(entry: dict[str, Any]) -> tuple[Outcome, float]:
    measures = tuple(map(Measure.from_json, entry["measures"]))
    return Outcome(measures, entry["facts"], tuple(entry["notes"])), entry["seconds"]
