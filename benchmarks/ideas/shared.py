"""Shared by the single ideas: biased models, one selection rule, and settings written before test images are read.

Without --root, networks of the embedded suite, one per seed, cached in WORK. With it, resamples of a table of images:
each inserts the artifact into other images of the biased class and retrains the head.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
from torch import Tensor, nn

import hansfree as hf
from benchmarks.comparison import (
    Answers,
    ComparisonEntry,
    Pair,
    Resample,
    answers,
    compare,
    fit_cav,
    make_resamples,
    make_validator,
)
from hansfree.activations import Activations, collect_activations, cut_at
from hansfree.corrections.selection import BalancedRule, SelectionRule, Validation
from hansfree.corrections.training import Heads, TrainedHead
from hansfree.data.examples import ImageDataset
from hansfree.models import architecture_named
from hansfree_paper.dataset import BenchmarkDataset
from hansfree_paper.subjects import BaseModels, Plan, open_subject, tuning_for

WITH_IT, FLIPS = "balanced_accuracy_biased", "flip_rate"
BEST = BalancedRule()
State = Mapping[str, Tensor]
Judge = Callable[[Heads], list[Validation]]


@dataclass(frozen=True)
class Candidate:
    """A correction, and how its strength is chosen on validation images."""

    make: Callable[[Resample], hf.corrections.LatentCorrection]
    rule: SelectionRule = BEST
    strengths: Sequence[float] | None = None  # None: the method's own


@dataclass(frozen=True, eq=False)
class Selected:
    """A resample before any test image is read: what each candidate took, and the heads that came of it."""

    resample: Resample
    strengths: dict[str, float | None]  # None: no strength was admissible, and the model stays as it was
    heads: dict[str, State]


def read_arguments(
    about: str | None, artifacts: Sequence[str], *, further: Mapping[str, str] = MappingProxyType({})
) -> argparse.Namespace:
    """Read what to measure.

    Args:
        artifacts: those that are measured where none is named.
        further: what options of the script's own mean, by their names.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="folder of a table of images; without it, the embedded lesions")
    parser.add_argument("--biased-class", help="label that the artifact leaks into, with --root")
    parser.add_argument("--weights", help="of ResNet-18's layers, with --root")
    parser.add_argument("--artifact", action="append", help=f"repeat for several; {', '.join(artifacts)} by default")
    parser.add_argument("--epochs", type=int, help="of training the model, or its head")
    parser.add_argument("--size", type=int, help="side of the images in pixels")
    parser.add_argument("--resamples", type=int, default=5)
    parser.add_argument("--work", type=Path, default=Path("work"), help="for models, caches and settings")
    for option, meaning in further.items():
        parser.add_argument(option, help=meaning)
    args = parser.parse_args()
    args.artifact = args.artifact or list(artifacts)
    args.model = "demo" if args.root is None else "resnet18"
    args.work.mkdir(parents=True, exist_ok=True)
    return args


def iter_resamples(args: argparse.Namespace, artifact: str) -> Iterator[Resample]:
    """Yield biased models with their images at the layer; in place of the test images are the validation images."""
    if args.root is None:
        yield from _networks(args, artifact)
        return
    study = BenchmarkDataset.named("table")(
        args.root, artifact=artifact, biased_class=args.biased_class, size=args.size
    )
    plan = Plan(model=args.model, weights=args.weights, trained="head", epochs=args.epochs, corrected="last")
    data = study.data(args.model)
    blind = replace(data, test_clean=data.val_clean, test_biased=data.val_biased)
    with open_subject(study, plan, args.work) as subject:
        for resample in make_resamples(subject, blind, range(args.resamples)):
            yield replace(resample, data=data)


def _networks(args: argparse.Namespace, artifact: str) -> Iterator[Resample]:
    study = BenchmarkDataset.named("synthetic")(artifact=artifact, size=args.size)
    data = study.data(args.model)
    seen = {name: in_memory(getattr(data, name)) for name in ("train", "train_biased", "val_clean", "val_biased")}
    data = replace(data, **seen)
    for seed in range(args.resamples):
        plan = Plan(model=args.model, epochs=args.epochs, seed=seed)
        model, _ = BaseModels(study=study, plan=plan, work=args.work).trained(_learned(args.size), "biased model")
        yield _make_resample(args, model, data, tuning_for(study, args.model, seed=seed))


@lru_cache(maxsize=6)
def in_memory(images: ImageDataset) -> hf.data.InMemory:
    """Resample images once: all networks of the embedded suite see the same."""
    return hf.data.InMemory(images)


@lru_cache(maxsize=1)
def _learned(size: int | None) -> hf.data.InMemory:
    """Return the training images of the networks, with all shortcuts: the same for every artifact."""
    return hf.data.InMemory(BenchmarkDataset.named("synthetic")(size=size).data("demo").learned)


def _make_resample(
    args: argparse.Namespace, model: nn.Module, data: hf.data.BiasedData, tuning: hf.FineTuning
) -> Resample:
    """Return a resample of a whole network; no clean-trained one stands beside it."""

    def look(images: ImageDataset) -> Activations:
        layer = architecture_named(args.model).layer
        return collect_activations(model, layer, images, folder=args.work / "activations")

    train, val = look(data.train), Pair(look(data.val_clean), look(data.val_biased))
    return Resample(
        number=tuning.seed,
        kind="retrained",
        biased_class=data.biased_class,
        model=model,
        reference=model,
        clean=train,
        train=train,
        pairs=Pair(*map(look, data.pairs or ())),
        val=val,
        test=val,
        corrected="all",
        cut=cut_at(model, train),
        tuning=tuning,
        data=data,
    )


def with_test(args: argparse.Namespace, resample: Resample) -> Resample:
    """Return the resample with its test images, which are read here for the first time."""
    sets = [resample.data.test_clean, resample.data.test_biased]
    if args.root is None:
        sets = [in_memory(images) for images in sets]
    look = (
        collect_activations(resample.model, resample.train.layer, each, folder=args.work / "activations")
        for each in sets
    )
    return replace(resample, test=Pair(*look))


def train_head(args: argparse.Namespace, resample: Resample, model: nn.Module, images: Activations) -> nn.Module:
    """Return the model with all that follows the layer trained on images, as the heads of the resamples are trained."""
    rate = architecture_named(args.model).head_rate
    tuning = hf.FineTuning(optimizer="adam", learning_rate=rate, epochs=args.epochs or 30, seed=resample.number)
    return hf.Vanilla(tuning=tuning).correct(model, images)


def learn_direction(resample: Resample, direction: str, pooling: str = "max") -> hf.CAV:
    """Return the direction of the resample's training images: "signal" of marked ones, "pair-1" of pairs."""
    return fit_cav(
        ComparisonEntry(name="", title="", method="rr-clarc", direction=direction, pooling=pooling), resample
    )


def select(resample: Resample, candidates: Mapping[str, Candidate], *, judge: Judge | None = None) -> Selected:
    """Train every candidate along its strengths, and let its rule take one by validation images.

    Args:
        judge: None is by the resample's validation images, as in a run.
    """
    judge = judge or make_validator(resample)
    (original,) = judge(Heads(resample.cut, 1, resample.tuning.device))
    strengths: dict[str, float | None] = {}
    heads: dict[str, State] = {"": resample.cut.head_parameters()}
    paths: dict[
        Callable[[Resample], hf.corrections.LatentCorrection], list[TrainedHead]
    ] = {}  # two rules may look at one path
    for name, candidate in candidates.items():
        if candidate.make not in paths:
            method = candidate.make(resample)
            wanted = candidate.strengths or method.info.strengths
            paths[candidate.make] = list(method.train(resample.cut, resample.train, wanted, watch=judge))
        path = paths[candidate.make]
        place = candidate.rule.choose([head.history[-1] for head in path], original).index
        strengths[name] = None if place is None else path[place].strength
        heads[name] = heads[""] if place is None else path[place].state
    return Selected(resample, strengths, heads)


def write_settings(args: argparse.Namespace, script: str, artifact: str, selected: Sequence[Selected]) -> None:
    """Append what was taken to WORK, before test images are read."""
    with (args.work / f"{Path(script).stem}.jsonl").open("a") as file:
        for each in selected:
            written = {"artifact": artifact, "resample": each.resample.number, "strengths": each.strengths}
            file.write(f"{json.dumps(written)}\n")


def predict(args: argparse.Namespace, selected: Sequence[Selected]) -> tuple[dict[str, Answers], np.ndarray]:
    """Return what all heads answer on test images, over the resamples, and the labels; "" is the biased model."""
    found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for each in selected:
        resample = with_test(args, each.resample)
        for name, state in each.heads.items():
            found.setdefault(name, []).append(answers(resample, state, None))
    joined = {name: Answers(*map(np.stack, zip(*said))) for name, said in found.items()}
    return joined, np.asarray(selected[0].resample.data.test_clean.labels)


def describe(said: Mapping[str, Answers], labels: np.ndarray, names: Sequence[str], measure: str) -> str:
    """Return the means over the resamples in per cent."""
    return ", ".join(f"{100 * said[name].score(labels, measure).mean():.1f}" for name in names)


class Tally:
    """Counts wins, ties and losses by both measures, and words differences."""

    def __init__(self) -> None:
        self.signs: dict[str, Counter[int]] = {WITH_IT: Counter(), FLIPS: Counter()}

    def compare(self, said: Mapping[str, Answers], labels: np.ndarray, new: str, old: str, measure: str) -> str:
        """Return the difference with its 95 % interval, and count it."""
        lead = compare(said[new], said[old], labels, measure)
        self.signs[measure][lead.sign if measure == WITH_IT else -lead.sign] += 1
        return f"{100 * lead.value:+.1f} ({100 * lead.low:+.1f} to {100 * lead.high:+.1f})"

    def __str__(self) -> str:
        counts = (
            f"by {words}: {signs[1]} wins, {signs[0]} ties, {signs[-1]} losses"
            for words, signs in zip(("balanced accuracy with the artifact", "flips"), self.signs.values())
        )
        return "; ".join(counts)


def print_comparisons(
    args: argparse.Namespace,
    script: str,
    resamples: Callable[[str], Iterator[Resample]],
    candidates: Mapping[str, Candidate],
    rivals: Mapping[str, str],
) -> None:
    """Print a table: every new candidate against its old rival, for every artifact.

    Args:
        resamples: of an artifact.
        rivals: old candidates by new ones.
    """
    tally = Tally()
    print("| artifact | new, old | balanced with it: original model, old, new | difference | flips | difference |")
    print("|---|---|---|---|---|---|", flush=True)
    for artifact in args.artifact:
        selected = [select(resample, candidates) for resample in resamples(artifact)]
        write_settings(args, script, artifact, selected)
        said, labels = predict(args, selected)
        for new, old in rivals.items():
            cells = [f"{artifact} | {new}, {old}"]
            for measure in (WITH_IT, FLIPS):
                cells.append(describe(said, labels, ("", old, new), measure))
                cells.append(tally.compare(said, labels, new, old, measure))
            print(f"| {' | '.join(cells)} |", flush=True)
    print(tally)
