"""The benchmarks, in the order of the table, and how to run them."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader
from torch.utils.flop_counter import flop_registry

import hansfree
from benchmarks.speed.cached import Ready, Walk, make_ready, seconds_per_step, walk
from benchmarks.speed.measures import Benchmark, Measure, Outcome, Record, Target, rate, ratio
from benchmarks.speed.reference import PaperRRR, PaperTraining
from benchmarks.speed.setup import CLASSES, Images, Side, Sizes, Subject, clock, take_turns, timed
from hansfree._internal.progress import Progress, silent, without_warnings
from hansfree.activations import collect_activations, compute_features, cut_at
from hansfree.cavs import CAV, SignalCAV
from hansfree.cavs.regularised import PENALTIES
from hansfree.corrections import RRR, RRClArC, Vanilla
from hansfree.corrections.training import Heads, large_head
from hansfree.data.artifacts import Artifact, Brightness, Timestamp
from hansfree.data.datasets import InMemory
from hansfree.data.examples import Example
from hansfree.data.insertion import WithArtifact
from hansfree.data.lesions import SyntheticLesions
from hansfree.errors import HansfreeError
from hansfree.evaluation.heatmaps import compute_heatmaps
from hansfree.models import build_model
from hansfree.pipeline.config import CorrectionSection

_PAPER_STEPS = 2  # per turn, after one to warm up


class PathBenchmark(Benchmark, name="path"):
    """Pass, CAV, path, validation and choice on our side; on the paper's its training steps alone.

    Its CAV, and its validation after every epoch, are not counted: that is to its advantage. A large head is
    timed in all of its inputs too, as it is trained where its images are too many for their span.
    """

    def measure(self, subject: Subject, progress: Progress) -> Outcome:
        """Time both sides; the paper's is multiplied up from single steps, and so is ours where the head is large."""
        paper, batches = _paper(subject), _endless(subject)
        strengths, epochs = RRClArC.info.strengths, subject.tuning.epochs
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
            with patch.object(large_head, "MIN_WEIGHTS", math.inf):  # in all of the head's inputs
                found = _walk(subject, strengths)
            trainings["plain"].append(found.training)
            return found.seconds

        sides: dict[str, Side] = {
            "one": lambda: _walk(subject, strengths[:1], times=subject.times).seconds,
            "path": path,
            "paper": lambda: timed(paper_steps)() / _PAPER_STEPS,
        }
        if subject.is_large:
            del sides["one"]  # it is multiplied up from the epochs of the path
            sides["plain"] = plain
        paper_steps(1)  # to warm up
        seconds = take_turns(sides, turns=subject.sizes.turns, progress=progress, label=f"path {subject.name}")
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


def _walk(subject: Subject, strengths: Sequence[float], *, images: Images | None = None, times: int = 1) -> Walk:
    return walk(
        subject.model,
        subject.layer,
        subject.images if images is None else images,
        subject.tuning,
        strengths=strengths,
        epochs_timed=subject.epochs_timed,
        times=times,
    )


def _paper(subject: Subject) -> PaperTraining:
    ready = make_ready(subject.model, subject.layer, subject.images, subject.sizes.batch)
    correction = RRClArC(ready.cav, tuning=subject.tuning)
    (direction,) = torch.from_numpy(correction.features(ready.train).directions).float()
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
        "images": subject.times * len(subject.images.train),
        "validation_images": subject.times * (len(subject.images) - len(subject.images.train)),
        "strengths": len(RRClArC.info.strengths),
        "epochs": subject.tuning.epochs,
        "our_strengths_timed": 1 if timed else len(RRClArC.info.strengths),
        "our_epochs_timed": timed or subject.tuning.epochs,
        "paper_steps": subject.times * steps * len(RRClArC.info.strengths),
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


class FloorBenchmark(Benchmark, name="floor"):
    """The floor is ``inference_mode``, the fastest of three batch sizes; from memory, and from JPEG files."""

    def measure(self, subject: Subject, progress: Progress) -> Outcome:
        """Choose the floor's batch, then let floor and path take turns."""
        batches = (subject.sizes.batch // 4, subject.sizes.batch, 2 * subject.sizes.batch)
        subject.forward(subject.images, batches[0])  # to warm up
        tried = {batch: timed(lambda batch=batch: subject.forward(subject.images, batch))() for batch in batches}  # type: ignore[misc]
        fastest = min(tried, key=tried.__getitem__)
        with TemporaryDirectory(prefix="hansfree-bench-") as folder:
            files = subject.images.as_files(Path(folder))
            strengths, times = RRClArC.info.strengths, subject.times
            sides: dict[str, Side] = {
                "forward": timed(lambda: subject.forward(subject.images, fastest)),
                "path": lambda: _walk(subject, strengths, times=times).seconds,
                "forward_jpeg": timed(lambda: subject.forward(files, fastest)),
                "path_jpeg": lambda: _walk(subject, strengths, images=files, times=times).seconds,
                "jpeg": timed(lambda: _read(files, fastest)),
            }
            label = f"floor {subject.name}"
            seconds = take_turns(sides, turns=subject.sizes.turns, progress=progress, label=label)
        forward, forward_jpeg = ([subject.times * t for t in seconds[f"forward{kind}"]] for kind in ("", "_jpeg"))
        name, target = subject.name, None if subject.is_large else Target("at most", 1.1)
        multiplied = (
            f" Our path is multiplied up from {subject.epochs_timed} epochs of one strength, both from "
            f"{len(subject.images)} to {subject.times * len(subject.images)} images."
            if subject.is_large
            else ""
        )
        return Outcome(
            (
                ratio(f"{name}.path_over_forward", seconds["path"], forward, target),
                ratio(f"{name}.path_over_forward_jpeg", seconds["path_jpeg"], forward_jpeg, target),
                rate(f"{name}.jpeg_images_per_second", len(files), seconds["jpeg"]),
            ),
            {"images": len(subject.images), "floor_batch": fastest, "floor_batches_tried": tried},
            (f"{name}: the floor's batch is {fastest}, the fastest of {', '.join(map(str, batches))}.{multiplied}",),
        )


def _read(images: Images, batch: int) -> None:
    for loader in images.loaders(batch):
        for _ in loader:
            pass


class StepBenchmark(Benchmark, name="step"):
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


_BATCH = 8  # the graph of a double backward holds every activation of the whole model
_STEPS = 2
_EPOCHS = 2  # the first finds what the others need not find again
_ARTIFACTS: dict[str, Artifact] = {"": Timestamp(), "_everywhere": Brightness()}


class RRRBenchmark(Benchmark, name="rrr"):
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
        name, epochs, tried = subject.name, subject.tuning.epochs, len(RRR.info.strengths)
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
    images = InMemory(WithArtifact(drawn, artifact, share=1))
    batches = [images.batch(range(start, start + _BATCH)) for start in range(0, len(images), _BATCH)]
    epochs, tuning = subject.tuning.epochs, replace(subject.tuning, batch_size=_BATCH, epochs=_EPOCHS)
    activations = collect_activations(subject.model, subject.layer, images, batch_size=_BATCH)
    cut = cut_at(subject.model, activations)
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
        "grid": lambda: our_epochs(RRR.info.strengths),
        "paper": paper_epochs,
    }
    if subject.is_large:
        del sides["grid"]  # its strengths are trained one after the other: so many times one
    return sides


def _sum(*seconds: Sequence[float]) -> list[float]:
    return [sum(turn) for turn in zip(*seconds)]


_LRP_BATCH = 8
_TARGET = 0


class LRPBenchmark(Benchmark, name="lrp"):
    """The same composite, batch and images on both sides; ours checks and canonises the model each time."""

    def measure(self, subject: Subject, progress: Progress) -> Outcome:
        """Let both explain one class."""
        wanted = subject.sizes.heatmaps // 4 if subject.is_large else subject.sizes.heatmaps
        n = min(wanted, len(subject.images.train))
        images = subject.images.train.batch(range(n)).image
        sides = {
            "ours": timed(lambda: compute_heatmaps(subject.model, images, _TARGET, batch_size=_LRP_BATCH)),
            "zennit": timed(lambda: zennit_heatmaps(subject, images)),
        }
        zennit_heatmaps(subject, images[:1])  # to warm up
        compute_heatmaps(subject.model, images[:1], _TARGET, batch_size=_LRP_BATCH)
        seconds = take_turns(sides, turns=subject.sizes.turns, progress=progress, label=f"lrp {subject.name}")
        name = subject.name
        return Outcome(
            (
                ratio(f"{name}.heatmaps_over_zennit", seconds["ours"], seconds["zennit"]),
                rate(f"{name}.heatmaps_per_second", n, seconds["ours"]),
            ),
            {"images": n, "batch": _LRP_BATCH},
            (f"{name}: zennit has no rule for squeeze-excite and loses relevance there; only its time counts.",)
            if subject.name == "efficientnet_b0"
            else (),
        )


def zennit_heatmaps(subject: Subject, images: Tensor) -> Tensor:
    """Return heatmaps as zennit's own documentation makes them."""
    from zennit.attribution import Gradient
    from zennit.composites import EpsilonPlusFlat
    from zennit.torchvision import ResNetCanonizer, VGGCanonizer

    # VGG's canonizer merges batch norms wherever they follow a convolution: the most that zennit has for other models.
    canonizer = ResNetCanonizer() if subject.name == "resnet18" else VGGCanonizer()
    maps = []
    with Gradient(model=subject.model, composite=EpsilonPlusFlat(canonizers=[canonizer])) as attributor:
        for batch in torch.split(images, _LRP_BATCH):
            _, relevance = attributor(batch.clone(), _start)
            maps.append(relevance.sum(1))
    return torch.cat(maps)


def _start(logits: Tensor) -> Tensor:
    only = torch.zeros_like(logits)
    only[:, _TARGET] = logits.detach()[:, _TARGET]
    return only


class CacheBenchmark(Benchmark, name="cache"):
    """The pass onto disk, in a folder of its own every time, against a plain forward pass of the same batch."""

    def measure(self, subject: Subject, progress: Progress) -> Outcome:
        """Let both take turns, then weigh what lies on the disk."""
        images, batch = subject.images.train, subject.sizes.batch

        @torch.inference_mode()
        def forward() -> None:
            for loaded in DataLoader(images, batch_size=batch):
                subject.model(loaded.image)

        with TemporaryDirectory(prefix="hansfree-bench-") as folder:
            fresh = (Path(folder) / str(number) for number in range(1 + subject.sizes.turns))

            def fill() -> None:
                collect_activations(subject.model, subject.layer, images, folder=next(fresh), batch_size=batch)

            fill()  # to warm up
            sides = {"cache": timed(fill), "forward": timed(forward)}
            seconds = take_turns(sides, turns=subject.sizes.turns, progress=progress, label=f"cache {subject.name}")
            at_layer = _bytes(Path(folder) / "0")
            at_head = _bytes_of_features(subject, Path(folder) / "0")
        name, n = subject.name, len(images)
        return Outcome(
            (
                ratio(
                    f"{name}.cache_speed_over_forward", seconds["forward"], seconds["cache"], Target("at least", 0.95)
                ),
                rate(f"{name}.forward_images_per_second", n, seconds["forward"]),
                rate(f"{name}.cache_images_per_second", n, seconds["cache"]),
                Measure(f"{name}.cache_bytes_per_image", (at_layer / n,), "bytes"),
                Measure(f"{name}.features_bytes_per_image", (at_head / n,), "bytes"),
            ),
            {"images": n, "batch": batch, "precision": "float32"},
        )


def _bytes_of_features(subject: Subject, folder: Path) -> int:
    """Return what values and tangents take that the path of RR-ClArC reads in every epoch."""
    images, before = subject.images.train, _bytes(folder)
    activations = collect_activations(
        subject.model, subject.layer, images, folder=folder, batch_size=subject.sizes.batch
    )
    correction = RRClArC(SignalCAV().fit(activations.pooled, images.has_artifact))
    cut = cut_at(subject.model, activations)
    compute_features(cut, activations, correction.features(activations))
    return _bytes(folder) - before


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class GrowthBenchmark(Benchmark, name="growth"):
    """Images: pass, CAV and path. Classes and strengths: the path on the cache, all other things equal.

    Not for a large head: its strengths are trained one after the other, and its images are multiplied up anyway.
    """

    def takes(self, subject: Subject) -> bool:
        """Take models with small heads."""
        return not subject.is_large

    def measure(self, subject: Subject, progress: Progress) -> Outcome:
        """Time a few sizes of each kind in turns, and fit a line to each."""
        sizes, strengths = subject.sizes, RRClArC.info.strengths
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
            sides[f"strengths {n}"] = _growth_path(subject, ready, strengths[:n])
        for n in sizes.classes:
            sides[f"classes {n}"] = _growth_path(subject, _with_classes(subject, ready, n), strengths)
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


def _growth_path(subject: Subject, ready: Ready, strengths: Sequence[float]) -> Side:
    def work() -> None:
        with without_warnings():  # of strengths that diverge
            list(RRClArC(ready.cav, tuning=subject.tuning).train(ready.cut, ready.train, strengths))

    return timed(work)


def _with_classes(subject: Subject, ready: Ready, classes: int) -> Ready:
    """Give the same trunk a head for more classes; most of them have no image, which costs as much time."""
    model = build_model(subject.name, classes=classes).eval()
    trunk = {name: value for name, value in subject.model.state_dict().items() if name not in ready.cut.trainable}
    model.load_state_dict(trunk, strict=False)
    return Ready(ready.train, cut_at(model, ready.train), ready.cav)


def _slopes(seconds: dict[str, tuple[float, ...]], kind: str, numbers: Sequence[int]) -> tuple[float, ...]:
    turns = np.log(np.array([seconds[f"{kind} {n}"] for n in numbers]))
    return tuple(float(slope) for slope in np.polyfit(np.log(np.array(numbers, dtype=float)), turns, 1)[0])


_FOLDS = 5


class RunBenchmark(Benchmark, name="run"):
    """A whole run with the default methods of `hansfree run`, over one plain forward pass of the training images.

    From artifact labels alone to report and weights. Once in seconds, and once in floating point operations, those of
    backward passes included, which other programs do not disturb.
    """

    def takes(self, subject: Subject) -> bool:
        """Take the networks that a deep correction was tuned on, and the trial's."""
        return subject.name in ("resnet18", "demo")

    def measure(self, subject: Subject, progress: Progress) -> Outcome:
        """Time and count one run, after a forward pass."""
        n, size, name = subject.sizes.run_images, subject.sizes.run_size, subject.name
        starts = {0: n, n: n // 4, n + n // 4: n // 4}  # training, validation and test images
        lesions = [SyntheticLesions(count, size=size, start=start) for start, count in starts.items()]
        parts = [InMemory(WithArtifact(part, Timestamp(), share=0.5, only_class=0)) for part in lesions]
        model = build_model(name, classes=len(lesions[0].class_names)).eval()
        counts: dict[str, list[int]] = {"forward": [], "run": []}
        facts: dict[str, Any] = {"images": [len(part) for part in parts], "size": size}

        @torch.inference_mode()
        def forward() -> None:
            for loaded in DataLoader(parts[0], batch_size=subject.sizes.batch):
                model(loaded.image)

        def run() -> None:
            train, val, test = parts
            methods = CorrectionSection().methods  # all of them: random weights would choose a family at random
            with TemporaryDirectory(prefix="hansfree-bench-") as folder:
                options: dict[str, Any] = {"method": methods, "device": "cpu", "progress": False}
                result = hansfree.unlearn(model, train, val=val, test=test, cache=Path(folder) / "run", **options)
                facts["methods"] = list(result.verdicts)
                facts["transplants"] = (result.directory / "transplants.npz").exists()

        def counted(side: str, work: Callable[[], None]) -> Side:
            def once() -> float:
                with _Operations() as operations:
                    seconds = timed(work)()
                counts[side].append(operations.total)
                return seconds

            return once

        sides = {"forward": counted("forward", forward), "run": counted("run", run)}
        seconds = take_turns(sides, turns=1, progress=progress, label=f"run {name}")
        return Outcome(
            (
                ratio(f"{name}.run_over_forward", seconds["run"], seconds["forward"], _MOST_PASSES),
                ratio(f"{name}.run_operations_over_forward", counts["run"], counts["forward"], _MOST_PASSES),
            ),
            {**facts, "operations": counts["run"][0]},
            (f"{name}: a whole run of {n} training images at {size} px, one turn, random weights.",),
        )


class _Operations(TorchDispatchMode):
    """Counts floating point operations, those of backward passes too."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        counts = flop_registry.get(func._overloadpacket)
        if counts is None:  # in inference mode a layer comes as a whole
            with self:
                found = func.decompose(*args, **kwargs)
            if found is not NotImplemented:
                return found
        found = func(*args, **kwargs)
        if counts is not None:
            self.total += counts(*args, **kwargs, out_val=found)
        return found


STATUS = Path("/proc/self/status")  # tells RssAnon, on Linux only


class CAVBenchmark(Benchmark, name="cav"):
    """One process on either side, the same tolerances and iterations, on drawn features of classes that overlap.

    The signal-CAV is not here: it is a difference of two means and has nothing to search.
    """

    per_model = False

    def measure(self, subject: Subject, progress: Progress) -> Outcome:
        """Fit every solver on the same samples."""
        samples, channels = subject.sizes.samples, subject.sizes.channels
        rng = np.random.default_rng(0)
        has_artifact = np.arange(samples) % 2 == 0
        features = rng.normal(size=(samples, channels)) + np.outer(has_artifact, rng.normal(scale=0.1, size=channels))
        sides: dict[str, Side] = {}
        for name, search in SEARCHES.items():
            sides[f"ours {name}"] = timed(lambda name=name: CAV.named(name)().fit(features, has_artifact))  # type: ignore[misc]
            sides[f"sklearn {name}"] = timed(lambda search=search: _search(search(), features, has_artifact))  # type: ignore[misc]
        seconds = take_turns(sides, turns=subject.sizes.turns, progress=progress, label="cav")
        measures: list[Measure] = [
            ratio(f"cav.{name}_over_gridsearch", seconds[f"ours {name}"], seconds[f"sklearn {name}"])
            for name in SEARCHES
        ]
        return Outcome(
            tuple(measures),
            {"samples": samples, "channels": channels, "penalties": len(PENALTIES), "folds": _FOLDS},
            ("cav: the grid search chooses the SVM by accuracy, the others by the loss that ours chooses by.",),
        )


def _ridge() -> Any:
    from sklearn.linear_model import Ridge

    return Ridge(), {"alpha": PENALTIES}, "neg_mean_squared_error"


def _lasso() -> Any:
    from sklearn.linear_model import Lasso

    return Lasso(tol=1e-3, max_iter=300), {"alpha": PENALTIES}, "neg_mean_squared_error"


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(tol=1e-5, max_iter=200), {"C": 1 / PENALTIES}, "neg_log_loss"


def _svm() -> Any:
    from sklearn.svm import SVC

    solver = SVC(kernel="linear", class_weight="balanced", tol=1e-3, max_iter=50_000)
    return solver, {"C": 1 / PENALTIES}, "accuracy"


SEARCHES: dict[str, Callable[[], Any]] = {"svm": _svm, "ridge": _ridge, "lasso": _lasso, "logistic": _logistic}


def _search(parts: Any, features: np.ndarray, has_artifact: np.ndarray) -> None:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    solver, grid, scoring = parts
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # as on our side
        GridSearchCV(solver, grid, scoring=scoring, cv=folds).fit(features, has_artifact.astype(np.int64))


_MOST_PASSES = Target("at most", 24)  # of a whole run


class MemoryBenchmark(Benchmark, name="memory"):
    """A process of its own for each number of images: pass onto disk, CAV, all strengths with validation.

    The network is the demo's, whatever the models: what could grow is kept per image, and a small network makes
    thousands of images quick.
    """

    per_model = False

    def takes(self, subject: Subject) -> bool:
        """Only Linux tells the anonymous part of a process's memory."""
        return STATUS.exists()

    def measure(self, subject: Subject, progress: Progress) -> Outcome:
        """Take the peak of every number of images once per turn."""
        numbers = subject.sizes.remembered
        work = [n for _ in range(subject.sizes.turns) for n in numbers]
        peaks: dict[int, list[float]] = {n: [] for n in numbers}
        for n in progress(work, total=len(work), label="memory"):
            peaks[n].append(_peak(n))
        few = numbers[0]
        ratios = [ratio(f"memory_{n}_over_{few}", peaks[n], peaks[few], Target("at most", 1.1)) for n in numbers[1:]]
        return Outcome(
            (*ratios, *(Measure(f"memory_peak_{n}", tuple(peaks[n]), "bytes") for n in numbers)),
            {"images": numbers, "model": "demo"},
            ("memory: the anonymous part (RssAnon); what the system keeps of files it can drop at any time.",),
        )


_ROOT = Path(__file__).parents[2]  # where `benchmarks` can be imported


def _peak(images: int) -> float:
    with TemporaryDirectory(prefix="hansfree-bench-") as folder:
        out = Path(folder) / "peak.json"
        command = [sys.executable, "-m", "benchmarks.speed.peak", str(images), str(out)]
        # With a fixed threshold malloc gives large blocks back at once: what is measured is what the program holds.
        # (By default it keeps up to some 60 MB of them, now more and now less, however many images there are.)
        environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
        done = subprocess.run(command, env=environment, cwd=_ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise HansfreeError(f"The process that measures memory with {images} images failed: {last}")
        return float(json.loads(out.read_text(encoding="utf-8")))


def run_benchmarks(
    record: Record,
    sizes: Sizes,
    benchmarks: Sequence[str] = (),
    *,
    again: bool = False,
    progress: Progress = silent,
) -> None:
    """Run the benchmarks that the record lacks.

    Args:
        benchmarks: Their names; none means all.
        again: Run those that it has, too.
    """
    chosen = [Benchmark.named(name)() for name in benchmarks or Benchmark.members()]
    for key, benchmark, subject in _entries(chosen, sizes):
        if (key in record and not again) or not benchmark.takes(subject):
            continue
        start = clock()
        outcome = benchmark.measure(subject, progress)
        record.add(key, outcome, clock() - start)


def _entries(benchmarks: Sequence[Benchmark], sizes: Sizes) -> Iterator[tuple[str, Benchmark, Subject]]:
    """Yield model by model, so that only one and its images stand in memory; what needs no model comes last."""
    for model in sizes.models:
        subject = Subject(sizes, model)
        for benchmark in benchmarks:
            if benchmark.per_model:
                yield f"{benchmark.name}.{model}", benchmark, subject
    for benchmark in benchmarks:
        if not benchmark.per_model:
            yield benchmark.name, benchmark, Subject(sizes, sizes.models[0])
