"""Our RRR (VJP, mask, JVP on the frozen trunk) against the paper's (double backward through the whole model)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from benchmarks.speed.measures import Measure, Target, ratio
from benchmarks.speed.paper_rrr import PaperRRR
from benchmarks.speed.race import Outcome, Race
from benchmarks.speed.subject import CLASSES, Subject
from benchmarks.speed.timing import Side, clock, take_turns, timed
from hansfree._internal.progress import Progress, without_warnings
from hansfree.activations import collect_activations, cut_again
from hansfree.artifacts import Artifact, Brightness, Timestamp
from hansfree.corrections import RRR
from hansfree.corrections.training import Heads
from hansfree.datasets import InMemory, Stamped, SyntheticLesions

_BATCH = 8  # the graph of a double backward holds every activation of the whole model
_STEPS = 2
_EPOCHS = 2  # the first finds what the others need not find again
_ARTIFACTS: dict[str, Artifact] = {"": Timestamp(), "_everywhere": Brightness()}


class RRRRace(Race, name="rrr"):
    """One strength, and the strengths of a run: our pass and ten epochs against ten epochs of the paper's for each.

    Every image carries the artifact: the worst case for us, for one without a mask costs us its head alone. A timestamp
    has a place; brightness is everywhere.
    """

    def measure(self, subject: Subject, progress: Progress) -> Outcome:
        """Time the pass and some steps of ours, and some steps of the paper's."""
        sides: dict[str, Side] = {}
        for kind, artifact in _ARTIFACTS.items():
            sides |= {f"{side}{kind}": run for side, run in _sides(subject, artifact).items()}
        del sides["paper_everywhere"], sides["pass_everywhere"]  # they are what they are with any mask
        seconds = take_turns(sides, turns=subject.sizes.turns, progress=progress, label=f"rrr {subject.name}")
        name, epochs, tried = subject.name, subject.tuning.epochs, len(RRR.grid)
        paper, half = seconds["paper"], Target("at most", 0.5)
        measures: list[Measure] = []
        for kind in _ARTIFACTS:
            one = seconds[f"one{kind}"]
            grid = seconds.get(f"grid{kind}") or [tried * once for once in one]
            papers = [tried * once for once in paper]
            measures += [
                ratio(f"{name}.rrr{kind}_over_paper", _sum(seconds["pass"], one), paper, half),
                ratio(f"{name}.rrr_grid{kind}_over_paper", _sum(seconds["pass"], grid), papers, half),
            ]
            if not kind:  # what the plan counts with
                each = tuple(taken / epochs / (_STEPS * _BATCH) for taken in grid)
                measures.append(Measure(f"{name}.rrr_grid_seconds_per_image", each, "seconds"))
        return Outcome(
            tuple(measures),
            {"batch": _BATCH, "images": _STEPS * _BATCH, "epochs": epochs, "epochs_timed": _EPOCHS, "strengths": tried},
            (
                f"{name}: RRR at batch {_BATCH}, every image with a mask; the paper's {epochs} epochs are multiplied "
                f"up from one per turn, ours from the first and the second. Grid: {tried} strengths; so many times "
                f"one for the paper's{' and for ours' if subject.is_large else ''}.",
            ),
        )


def _sides(subject: Subject, artifact: Artifact) -> dict[str, Side]:
    drawn = SyntheticLesions(_STEPS * _BATCH, size=subject.sizes.size, classes=CLASSES)
    images = InMemory(Stamped(drawn, artifact, share=1))
    batches = [images.batch(range(start, start + _BATCH)) for start in range(0, len(images), _BATCH)]
    epochs, tuning = subject.tuning.epochs, replace(subject.tuning, batch_size=_BATCH, epochs=_EPOCHS)
    activations = collect_activations(subject.model, subject.layer, images, batch_size=_BATCH)
    cut = cut_again(subject.model, activations)
    ours = RRR(images, tuning=tuning)
    paper = PaperRRR(subject.model, cut.trainable, strength=ours.strength, tuning=tuning)

    def our_epochs(strengths: Sequence[float]) -> float:
        ends = [clock()]

        def watch(heads: Heads) -> list[None]:
            ends.append(clock())
            return [None] * heads.count

        with without_warnings():  # of strengths that diverge
            list(ours.train(cut, activations, strengths, watch=watch))
        start, first, second = ends
        return first - start + (epochs - 1) * (second - first)

    def paper_epochs() -> float:
        start = clock()
        for batch in batches:
            paper.step(batch.image, torch.as_tensor(batch.label), batch.mask)
        return epochs * (clock() - start)

    paper.step(batches[0].image, torch.as_tensor(batches[0].label), batches[0].mask)  # to warm up
    sides = {
        "pass": timed(lambda: collect_activations(subject.model, subject.layer, images, batch_size=_BATCH)),
        "one": lambda: our_epochs((ours.strength,)),
        "grid": lambda: our_epochs(RRR.grid),
        "paper": paper_epochs,
    }
    if subject.is_large:
        del sides["grid"]  # its strengths are trained one after the other: so many times one
    return sides


def _sum(*seconds: Sequence[float]) -> list[float]:
    return [sum(turn) for turn in zip(*seconds)]
