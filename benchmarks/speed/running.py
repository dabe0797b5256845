"""The whole benchmark: every race on every model, each kept as soon as it is over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.speed import timing
from benchmarks.speed.race import Race
from benchmarks.speed.record import Record
from benchmarks.speed.sizes import Sizes
from benchmarks.speed.subject import Subject
from hansfree._internal.progress import Progress, silent


def run_bench(
    record: Record,
    sizes: Sizes,
    races: Sequence[str] = (),
    *,
    again: bool = False,
    progress: Progress = silent,
) -> None:
    """Run the races that the record lacks.

    Args:
        races: Their names; none means all.
        again: Run those that it has, too.
    """
    chosen = [Race.named(name)() for name in races or Race.members()]
    for key, race, subject in _entries(chosen, sizes):
        if (key in record and not again) or not race.takes(subject):
            continue
        start = timing.clock()
        outcome = race.measure(subject, progress)
        record.add(key, outcome, timing.clock() - start)


def _entries(races: Sequence[Race], sizes: Sizes) -> Iterator[tuple[str, Race, Subject]]:
    """Yield model by model, so that only one and its images stand in memory; what needs no model comes last."""
    for model in sizes.models:
        subject = Subject(sizes, model)
        for race in races:
            if race.per_model:
                yield f"{race.name}.{model}", race, subject
    for race in races:
        if not race.per_model:
            yield race.name, race, Subject(sizes, sizes.models[0])
