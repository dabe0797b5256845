"""A step of RR-ClArC against a step of Vanilla on the same cache."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.speed.measures import ratio
from benchmarks.speed.ours import make_ready, seconds_per_step
from benchmarks.speed.race import Outcome, Race
from benchmarks.speed.subject import Subject
from benchmarks.speed.timing import take_turns
from hansfree._internal.progress import Progress
from hansfree.corrections import RRClArC, Vanilla


class StepRace(Race, name="step"):
    """What the penalty adds to a step, one head on either side."""

    def measure(self, subject: Subject, progress: Progress) -> Outcome:
        """Take the median step of some epochs in every turn."""
        ready = make_ready(subject.model, subject.layer, subject.images, subject.sizes.batch)
        tuning = replace(subject.tuning, epochs=subject.epochs_timed or subject.tuning.epochs)
        penalised, vanilla = RRClArC(ready.cav, tuning=tuning), Vanilla(tuning=tuning)
        seconds = take_turns(
            {
                "rr": lambda: seconds_per_step(penalised, ready.cut, ready.train, times=subject.times),
                "vanilla": lambda: seconds_per_step(vanilla, ready.cut, ready.train, times=subject.times),
            },
            turns=subject.sizes.turns,
            progress=progress,
            label=f"step {subject.name}",
        )
        steps = subject.times * len(ready.train) // subject.sizes.batch * tuning.epochs
        return Outcome(
            (ratio(f"{subject.name}.rr_step_over_vanilla_step", seconds["rr"], seconds["vanilla"]),),
            {"batch": subject.sizes.batch, "steps_per_turn": steps},
        )
