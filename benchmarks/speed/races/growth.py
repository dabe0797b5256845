"""How time grows with images, classes and strengths: the slope of the logarithms, 1 for growth in proportion."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from benchmarks.speed.measures import Measure, Target
from benchmarks.speed.ours import Ready, make_ready, walk
from benchmarks.speed.race import Outcome, Race
from benchmarks.speed.subject import Subject
from benchmarks.speed.timing import Side, take_turns, timed
from hansfree._internal.progress import Progress, without_warnings
from hansfree.activations import cut_again
from hansfree.corrections import RRClArC
from hansfree.models import build_model


class GrowthRace(Race, name="growth"):
    """Images: pass, CAV and path. Classes and strengths: the path on the cache, all other things equal.

    Not for a large head: its strengths are trained one after the other, and its images are multiplied up anyway.
    """

    def takes(self, subject: Subject) -> bool:
        """Take models with small heads."""
        return not subject.is_large

    def measure(self, subject: Subject, progress: Progress) -> Outcome:
        """Time a few sizes of each kind in turns, and fit a line to each."""
        sizes, strengths = subject.sizes, RRClArC.grid
        n_images = (sizes.images // 4, sizes.images // 2, sizes.images)
        n_strengths = (1, 4, len(strengths))
        sets = {n: subject.images.first(n) for n in n_images}
        ready = make_ready(subject.model, subject.layer, subject.images, sizes.batch)
        passes: list[float] = []

        def whole(n: int) -> float:
            run = walk(subject.model, subject.layer, sets[n], subject.tuning)
            if n == n_images[-1]:
                passes.append(run.passing)
            return run.seconds

        sides: dict[str, Side] = {}
        for n in n_images:
            sides[f"images {n}"] = lambda n=n: whole(n)  # type: ignore[misc]
        for n in n_strengths:
            sides[f"strengths {n}"] = _path(subject, ready, strengths[:n])
        for n in sizes.classes:
            sides[f"classes {n}"] = _path(subject, _with_classes(subject, ready, n), strengths)
        sides[f"classes {sizes.classes[-1]}"]()  # to warm up
        label = f"growth {subject.name}"
        seconds = take_turns(sides, turns=sizes.turns, progress=progress, label=label)
        name, more = subject.name, len(strengths) - 1
        added = zip(seconds[f"strengths {len(strengths)}"], seconds["strengths 1"], passes)
        heads = len(ready.train) * subject.tuning.epochs * len(strengths)
        most = sizes.classes[-1]
        return Outcome(
            (
                Measure(f"{name}.growth_images", _slopes(seconds, "images", n_images), "slope"),
                Measure(f"{name}.growth_classes", _slopes(seconds, "classes", sizes.classes), "slope"),
                Measure(f"{name}.growth_strengths", _slopes(seconds, "strengths", n_strengths), "slope"),
                Measure(
                    f"{name}.strength_over_pass",
                    tuple((many - one) / more / passing for many, one, passing in added),
                    target=Target("at most", 0.01),
                ),
                Measure(
                    f"{name}.head_seconds_per_image",
                    tuple(taken / heads for taken in seconds[f"classes {most}"]),
                    "seconds",
                ),
            ),
            {
                "images": n_images,
                "strengths": n_strengths,
                "classes": sizes.classes,
                "seconds": {side: median(taken) for side, taken in seconds.items()},
            },
            (f"{name}: head_seconds_per_image is per epoch and strength, with {most} classes.",),
        )


def _path(subject: Subject, ready: Ready, strengths: Sequence[float]) -> Side:
    def work() -> None:
        with without_warnings():  # of strengths that diverge
            list(RRClArC(ready.cav, tuning=subject.tuning).train(ready.cut, ready.train, strengths))

    return timed(work)


def _with_classes(subject: Subject, ready: Ready, classes: int) -> Ready:
    """Give the same trunk a head for more classes; most of them have no image, which costs as much time."""
    model = build_model(subject.name, classes=classes).eval()
    trunk = {name: value for name, value in subject.model.state_dict().items() if name not in ready.cut.trainable}
    model.load_state_dict(trunk, strict=False)
    return Ready(ready.train, cut_again(model, ready.train), ready.cav)


def _slopes(seconds: dict[str, tuple[float, ...]], kind: str, numbers: Sequence[int]) -> tuple[float, ...]:
    turns = np.log(np.array([seconds[f"{kind} {n}"] for n in numbers]))
    return tuple(float(slope) for slope in np.polyfit(np.log(np.array(numbers, dtype=float)), turns, 1)[0])
