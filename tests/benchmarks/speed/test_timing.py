from __future__ import annotations

import itertools

import pytest
from benchmarks.speed.measures import Measure, Target, rate, ratio

from benchmarks.speed import timing
from hansfree._internal.progress import silent


def test_sides_take_turns_and_every_other_turn_goes_backwards():
    ran = []
    sides = {name: lambda name=name: ran.append(name) or float(len(ran)) for name in "abc"}
    seconds = timing.take_turns(sides, turns=3, progress=silent, label="race")
    assert "".join(ran) == "abccbaabc"
    assert seconds == {"a": (1, 6, 7), "b": (2, 5, 8), "c": (3, 4, 9)}


def test_every_side_of_every_turn_shows_in_the_progress():
    told = []

    def progress(steps, *, total, label):
        told.append((total, label))
        return iter(steps)

    timing.take_turns({"a": lambda: 1.0, "b": lambda: 1.0}, turns=4, progress=progress, label="path demo")
    assert told == [(8, "path demo")]


def test_work_takes_the_seconds_between_two_looks_at_the_clock(monkeypatch):
    ticks = itertools.accumulate([10.0, 2.5])
    monkeypatch.setattr(timing, "clock", lambda: next(ticks))
    assert timing.timed(lambda: None)() == 2.5


def test_a_ratio_compares_within_a_turn_and_its_median_counts():
    found = ratio("demo.path_over_forward", [3.0, 2.0, 5.0], [1.0, 2.0, 2.0])
    assert found.samples == (3.0, 1.0, 2.5)
    assert (found.value, found.low, found.high) == (2.5, 1.0, 3.0)


def test_sides_with_unequal_turns_are_refused():
    with pytest.raises(ValueError, match="zip"):
        ratio("demo.path_over_forward", [1.0, 2.0], [1.0])


def test_a_rate_is_images_per_second():
    assert rate("demo.heatmaps_per_second", 8, [2.0, 4.0]).samples == (4.0, 2.0)


@pytest.mark.parametrize(
    ("target", "value", "verdict"),
    [
        (Target("at most", 1.1), 1.1, "<= 1.1: met"),
        (Target("at most", 1.1), 1.11, "<= 1.1: not met"),
        (Target("at least", 0.95), 0.96, ">= 0.95: met"),
        (Target("at least", 0.95), 0.94, ">= 0.95: not met"),
    ],
)
def test_a_target_says_whether_it_is_met(target, value, verdict):
    assert target.verdict(value) == verdict


@pytest.mark.parametrize("target", [None, Target("at least", 0.95)])
def test_a_measure_comes_back_from_json_as_it_was(target):
    measure = Measure("demo.x", (1.0, 2.0), "seconds", target)
    assert Measure.from_json(measure.as_json()) == measure
