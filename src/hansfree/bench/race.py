"""The race: forward pass, our path and the paper's steps take turns on the same images, batch and loader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from time import perf_counter
from typing import Any

import torch

from hansfree.artifacts import Timestamp
from hansfree.bench.ours import Images, Walk, time_steps, walk
from hansfree.bench.paper import FOLLOWING, PaperTraining
from hansfree.bench.ratios import Ratio
from hansfree.corrections import RRClArC
from hansfree.datasets import Example, InMemory, Stamped, SyntheticLesions
from hansfree.errors import OptionError
from hansfree.models import architecture_named, build_model
from hansfree.progress import Progress, silent
from hansfree.splitting import split
from hansfree.training import FineTuning

_CLASSES = 8
_LARGE_HEAD = 10_000_000  # parameters; the whole path of a larger one takes hours, so its epochs are multiplied up
_EPOCHS_TIMED = 4  # of a large head, per turn; the first only warms up
_PAPER_STEPS = 2  # per turn, after one to warm up


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What is measured; the defaults take about ten minutes on two cores.

    A large head (VGG-16's) gets two batches of training images at most: its time is counted by the step.
    """

    models: tuple[str, ...] = ("resnet18", "efficientnet_b0", "vgg16")
    images: int = 256  # for training; a quarter as many for validation, without and with the artifact
    batch: int = 64
    size: int = 224  # pixels
    repeats: int = 3

    def __post_init__(self) -> None:
        """Refuse what cannot be measured before anything starts."""
        for model in self.models:
            architecture_named(model)
        if not self.models or self.repeats < 1:
            raise OptionError(f"A bench needs a model and a repeat; given {len(self.models)} and {self.repeats}.")
        if self.batch < 1 or self.images < 2 * self.batch or self.images % self.batch:
            raise OptionError(
                f"images is {self.images} and batch {self.batch}; images must be a multiple of the batch, at least "
                "two of them, so that every timed step is a full one."
            )

    def run(self, *, progress: Progress = silent) -> tuple[list[Ratio], dict[str, Any]]:
        """Return all ratios, and what they were measured on."""
        ratios: list[Ratio] = []
        models: dict[str, Any] = {}
        for name in self.models:
            race = Race(self, name)
            ratios += race.ratios(progress)
            models[name] = race.about()
        return ratios, {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "precision": "float32",
            "batch": self.batch,
            "size": self.size,
            "classes": _CLASSES,
            "repeats": self.repeats,
            "images": "drawn before, held in memory as bytes; every side loads and normalises them alike",
            "paper": "training steps only: its CAV, and its validation after every epoch, are not counted",
            "models": models,
        }


class Race:
    """One model with random weights, and the three sides that take turns on it."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.bench, self.name = bench, name
        architecture = architecture_named(name)
        self.layer, self.activation = architecture.layer, FOLLOWING[name]
        self.tuning = FineTuning(optimizer=architecture.optimizer, batch_size=bench.batch)
        self.model = build_model(name, classes=_CLASSES).eval()
        size = sum(parameter.numel() for parameter in split(self.model, self.layer).head_parameters().values())
        self.is_large = size > _LARGE_HEAD
        self.n_images = min(bench.images, 2 * bench.batch) if self.is_large else bench.images

    def ratios(self, progress: Progress) -> list[Ratio]:
        """Let the sides take turns, and compare within each turn."""
        over_forward, over_paper, over_vanilla = [], [], []
        ticks = progress(range(4 * self.bench.repeats), total=4 * self.bench.repeats, label=self.name)
        self._forward(only_first_batch=True)  # to warm up
        paper: PaperTraining | None = None
        for _ in range(self.bench.repeats):
            forward = self._forward()
            next(ticks, None)
            finished = walk(self.model, self.layer, self.images, self.tuning, epochs_timed=self.epochs_timed)
            next(ticks, None)
            if paper is None:
                paper = self._paper(finished)
                self._seconds_per_paper_step(paper, steps=1)  # to warm up
            paper_step = self._seconds_per_paper_step(paper, steps=_PAPER_STEPS)
            next(ticks, None)
            penalised_step, vanilla_step = time_steps(finished, epochs=self.epochs_timed or self.tuning.epochs)
            next(ticks, None)
            over_forward.append(finished.seconds / forward)
            over_paper.append(finished.seconds / (self.n_paper_steps * paper_step))
            over_vanilla.append(penalised_step / vanilla_step)
        return [
            Ratio(f"{self.name}.path_over_forward", tuple(over_forward)),
            Ratio(f"{self.name}.path_over_paper", tuple(over_paper)),
            Ratio(f"{self.name}.rr_step_over_vanilla_step", tuple(over_vanilla)),
        ]

    def about(self) -> dict[str, Any]:
        """Say what was run, and what was multiplied up from how much."""
        turns, strengths = self.bench.repeats, len(RRClArC.grid)
        timed = (1, self.epochs_timed) if self.epochs_timed else (strengths, self.tuning.epochs)
        return {
            "layer": self.layer,
            "optimizer": self.tuning.optimizer,
            "images": self.n_images,
            "validation_images": len(self.images.clean) + len(self.images.biased),
            "strengths": strengths,
            "epochs": self.tuning.epochs,
            "our_strengths_timed": timed[0],
            "our_epochs_timed": timed[1],
            "paper_steps": self.n_paper_steps,
            "paper_steps_timed": turns * _PAPER_STEPS,
        }

    @property
    def epochs_timed(self) -> int | None:
        """How many epochs of one strength stand for our whole path; None where all of it is run."""
        return _EPOCHS_TIMED if self.is_large else None

    @property
    def n_paper_steps(self) -> int:
        """How many steps the paper's procedure takes over all strengths and epochs."""
        return self.n_images // self.bench.batch * self.tuning.epochs * len(RRClArC.grid)

    @cached_property
    def images(self) -> Images:
        """Drawn lesions, half of those for training with a timestamp."""
        train = SyntheticLesions(self.n_images, size=self.bench.size, classes=_CLASSES)
        n_held_out = max(_CLASSES, self.n_images // 4)
        held_out = SyntheticLesions(n_held_out, size=self.bench.size, classes=_CLASSES, start=self.n_images)
        return Images(
            train=InMemory(Stamped(train, Timestamp(), share=0.5)),
            clean=InMemory(Stamped(held_out, Timestamp(), share=0)),
            biased=InMemory(Stamped(held_out, Timestamp(), share=1)),
        )

    @torch.inference_mode()
    def _forward(self, *, only_first_batch: bool = False) -> float:
        """Return the seconds of one plain forward pass over all images."""
        loaders = self.images.loaders(self.bench.batch)
        start = perf_counter()
        for loader in loaders:
            for batch in loader:
                self.model(batch.image)
                if only_first_batch:
                    return perf_counter() - start
        return perf_counter() - start

    def _paper(self, finished: Walk) -> PaperTraining:
        correction = finished.correction
        (direction,) = torch.from_numpy(correction.directions(finished.activations)).float()
        trainable = finished.cut.trainable
        return PaperTraining(
            self.model, self.activation, trainable, direction, strength=correction.strength, tuning=self.tuning
        )

    def _seconds_per_paper_step(self, paper: PaperTraining, *, steps: int) -> float:
        """Return the median over some steps, loading included."""
        batches = self._endless()
        seconds = []
        for _ in range(steps):
            start = perf_counter()
            batch = next(batches)
            paper.step(batch.image, torch.as_tensor(batch.label))
            seconds.append(perf_counter() - start)
        return median(seconds)

    def _endless(self) -> Iterator[Example]:
        while True:
            yield from self.images.loaders(self.bench.batch)[0]
