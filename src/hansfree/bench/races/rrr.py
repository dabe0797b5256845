"""Our RRR (VJP, mask, JVP on the frozen trunk) against the paper's (double backward through the whole model)."""

from __future__ import annotations

from dataclasses import replace

import torch

from hansfree.activations import collect_activations, cut_again
from hansfree.artifacts import Timestamp
from hansfree.bench.measures import Measure, Target, ratio
from hansfree.bench.ours import divergence_expected
from hansfree.bench.paper_rrr import PaperRRR
from hansfree.bench.race import Outcome, Race
from hansfree.bench.subject import CLASSES, Subject
from hansfree.bench.timing import take_turns, timed
from hansfree.corrections import RRR
from hansfree.datasets import InMemory, Stamped, SyntheticLesions
from hansfree.progress import Progress

_BATCH = 8  # the graph of a double backward holds every activation of the whole model
_STEPS = 2


class RRRRace(Race, name="rrr"):
    """One strength, and the strengths of a run: our pass and ten epochs against ten epochs of the paper's for each.

    Every image carries the artifact: the worst case for us, for one without a mask costs us its head alone.
    """

    def measure(self, subject: Subject, progress: Progress) -> Outcome:
        """Time the pass and some steps of ours, and some steps of the paper's."""
        drawn = SyntheticLesions(_STEPS * _BATCH, size=subject.sizes.size, classes=CLASSES)
        images = InMemory(Stamped(drawn, Timestamp(), share=1))
        batches = [images.batch(range(start, start + _BATCH)) for start in range(0, len(images), _BATCH)]
        tuning = replace(subject.tuning, batch_size=_BATCH, epochs=1)
        activations = collect_activations(subject.model, subject.layer, images, batch_size=_BATCH)
        cut = cut_again(subject.model, activations)
        ours = RRR(images, tuning=tuning)
        paper = PaperRRR(subject.model, cut.trainable, strength=ours.strength, tuning=tuning)

        def our_steps(strengths: tuple[float, ...]) -> None:
            with divergence_expected():
                list(ours.train(cut, activations, strengths))

        def paper_steps() -> None:
            for batch in batches:
                paper.step(batch.image, torch.as_tensor(batch.label), batch.mask)

        paper.step(batches[0].image, torch.as_tensor(batches[0].label), batches[0].mask)  # to warm up
        sides = {
            "pass": timed(lambda: collect_activations(subject.model, subject.layer, images, batch_size=_BATCH)),
            "one": timed(lambda: our_steps((ours.strength,))),
            "grid": timed(lambda: our_steps(RRR.grid)),
            "paper": timed(paper_steps),
        }
        if subject.is_large:
            del sides["grid"]  # its strengths are trained one after the other: so many times one
        seconds = take_turns(sides, turns=subject.sizes.turns, progress=progress, label=f"rrr {subject.name}")
        epochs, tried = subject.tuning.epochs, len(RRR.grid)
        paper_seconds = [epochs * steps for steps in seconds["paper"]]
        one = [passing + epochs * steps for passing, steps in zip(seconds["pass"], seconds["one"])]
        grid_steps = seconds.get("grid") or [tried * once for once in seconds["one"]]
        grid = [passing + epochs * steps for passing, steps in zip(seconds["pass"], grid_steps)]
        per_image = tuple(steps / len(images) for steps in grid_steps)
        name, half = subject.name, Target("at most", 0.5)
        return Outcome(
            (
                ratio(f"{name}.rrr_over_paper", one, paper_seconds, half),
                ratio(f"{name}.rrr_grid_over_paper", grid, [tried * once for once in paper_seconds], half),
                Measure(f"{name}.rrr_grid_seconds_per_image", per_image, "seconds"),
            ),
            {"batch": _BATCH, "images": len(images), "epochs": epochs, "epochs_timed": 1, "strengths": tried},
            (
                f"{name}: RRR at batch {_BATCH}, every image with a mask; both sides' {epochs} epochs are multiplied "
                f"up from one per turn. Grid: {tried} strengths; so many times one for the paper's"
                f"{' and for ours' if subject.is_large else ''}.",
            ),
        )
