"""The paper's procedure against ours: one strength, and the whole path."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch

from benchmarks.speed import timing
from benchmarks.speed.measures import Measure, Target, ratio
from benchmarks.speed.ours import Unspanned, Walk, make_ready, walk
from benchmarks.speed.paper import PaperTraining
from benchmarks.speed.race import Outcome, Race
from benchmarks.speed.subject import Subject
from hansfree._internal.progress import Progress
from hansfree.corrections import RRClArC
from hansfree.datasets import Example

_PAPER_STEPS = 2  # per turn, after one to warm up


class PathRace(Race, name="path"):
    """Pass, CAV, path, validation and choice on our side; on the paper's its training steps alone.

    Its CAV, and its validation after every epoch, are not counted: that is to its advantage. Ours trains a large head
    along the leading directions of its images; the same in all of its inputs is timed beside it.
    """

    def measure(self, subject: Subject, progress: Progress) -> Outcome:
        """Time both sides; the paper's is multiplied up from single steps, and so is ours where the head is large."""
        paper, batches = _paper(subject), _endless(subject)
        strengths, epochs = RRClArC.grid, subject.tuning.epochs
        steps = len(subject.images.train) // subject.sizes.batch * epochs  # of one strength
        ones: list[float] = []  # seconds of one strength of a large head, multiplied up as the path is
        trainings: dict[str, list[float]] = {"path": [], "plain": []}

        def paper_steps(n: int = _PAPER_STEPS) -> None:
            for batch in islice(batches, n):
                paper.step(batch.image, torch.as_tensor(batch.label))

        def path() -> float:
            found = _walk(subject, strengths, times=subject.times)
            trainings["path"].append(found.training)
            if subject.is_large:
                ones.append(found.one)
            return found.seconds

        def plain() -> float:
            found = _walk(subject, strengths, method=Unspanned)
            trainings["plain"].append(found.training)
            return found.seconds

        sides: dict[str, timing.Side] = {
            "one": lambda: _walk(subject, strengths[:1], times=subject.times).seconds,
            "path": path,
            "paper": lambda: timing.timed(paper_steps)() / _PAPER_STEPS,
        }
        if subject.is_large:
            del sides["one"]  # it is multiplied up from the epochs of the path
            sides["plain"] = plain
        paper_steps(1)  # to warm up
        seconds = timing.take_turns(sides, turns=subject.sizes.turns, progress=progress, label=f"path {subject.name}")
        one_paper = [steps * step for step in seconds["paper"]]
        all_paper = [len(strengths) * each for each in one_paper]
        name = subject.name
        measures = [
            Measure(
                f"{name}.paper_seconds_per_image",
                tuple(step / subject.sizes.batch for step in seconds["paper"]),
                "seconds",
            )
        ]
        if subject.is_large:
            seen = len(subject.images.train) * epochs * len(strengths)
            per_image = tuple(each / seen / subject.times for each in trainings["path"])
            plain_per_image = tuple(each / seen for each in trainings["plain"])
            more_paper = [subject.times * total for total in all_paper]
            measures += [
                ratio(f"{name}.one_over_paper", ones, [subject.times * t for t in one_paper]),
                ratio(f"{name}.path_over_paper", seconds["path"], more_paper, Target("at most", 0.02)),
                ratio(f"{name}.plain_path_over_paper", seconds["plain"], all_paper, Target("at most", 0.08)),
                Measure(f"{name}.head_seconds_per_image", per_image, "seconds"),
                Measure(f"{name}.plain_head_seconds_per_image", plain_per_image, "seconds"),
            ]
        else:
            measures += [
                ratio(f"{name}.one_over_paper", seconds["one"], one_paper),
                ratio(f"{name}.path_over_paper", seconds["path"], all_paper),
            ]
        return Outcome(tuple(measures), _facts(subject, steps), _notes(subject, steps))


def _walk(subject: Subject, strengths: tuple[float, ...], *, times: int = 1, method: type[RRClArC] = RRClArC) -> Walk:
    return walk(
        subject.model,
        subject.layer,
        subject.images,
        subject.tuning,
        strengths=strengths,
        epochs_timed=subject.epochs_timed,
        times=times,
        method=method,
    )


def _paper(subject: Subject) -> PaperTraining:
    ready = make_ready(subject.model, subject.layer, subject.images, subject.sizes.batch)
    correction = RRClArC(ready.cav, tuning=subject.tuning)
    (direction,) = torch.from_numpy(correction.directions(ready.train)).float()
    return PaperTraining(
        subject.model,
        subject.activation,
        ready.cut.trainable,
        direction,
        strength=correction.strength,
        tuning=subject.tuning,
    )


def _endless(subject: Subject) -> Iterator[Example]:
    while True:
        yield from subject.images.loaders(subject.sizes.batch)[0]


def _facts(subject: Subject, steps: int) -> dict[str, object]:
    timed = subject.epochs_timed
    return {
        "layer": subject.layer,
        "optimizer": subject.tuning.optimizer,
        "leading": subject.tuning.leading,
        "images": subject.times * len(subject.images.train),
        "validation_images": subject.times * (len(subject.images) - len(subject.images.train)),
        "strengths": len(RRClArC.grid),
        "epochs": subject.tuning.epochs,
        "our_strengths_timed": 1 if timed else len(RRClArC.grid),
        "our_epochs_timed": timed or subject.tuning.epochs,
        "paper_steps": subject.times * steps * len(RRClArC.grid),
        "paper_steps_timed": subject.sizes.turns * _PAPER_STEPS,
    }


def _notes(subject: Subject, steps: int) -> tuple[str, ...]:
    facts = _facts(subject, steps)
    ours = (
        f"ours is multiplied up from {subject.epochs_timed} epochs of one strength per turn, and its pass from "
        f"{len(subject.images.train)} images (plain: all from {len(subject.images.train)} images)"
        if subject.is_large
        else "ours was run in full"
    )
    return (
        f"{subject.name}: {facts['strengths']} strengths x {facts['epochs']} epochs on {facts['images']} images; "
        f"{ours}; the paper's {facts['paper_steps']} steps are multiplied up from {facts['paper_steps_timed']}, "
        "without its CAV and its validation.",
    )
