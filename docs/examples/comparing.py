"""What the comparisons over draws share: biased models, one rule, and settings written before test images are read.

Without --root, networks of the embedded suite, each trained from a seed of its own and kept in WORK. With it, draws of
a table of images: in each others of the biased class carry the artifact, and the head is trained anew.
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
from hansfree.activations import Activations, collect_activations, cut_again
from hansfree.corrections.training import Heads, TrainedHead, tuning_for
from hansfree.datasets import ExampleSet
from hansfree.experiments.subjects import BaseModels, open_subject
from hansfree.experiments.workspace import Plan
from hansfree.models import architecture_named
from hansfree.selection import BalancedRule, SelectionRule, Validation
from hansfree.tournament import Draw, DrawAnswers, Entrant, Twins, answers, compare, fit_cav, make_draws, make_validator

WITH_IT, FLIPS = "balanced_accuracy_biased", "flip_rate"
BEST = BalancedRule()
State = Mapping[str, Tensor]
Judge = Callable[[Heads], list[Validation]]


@dataclass(frozen=True)
class Candidate:
    """A correction, and how its strength is chosen on validation images."""

    make: Callable[[Draw], hf.Correction]
    rule: SelectionRule = BEST
    strengths: Sequence[float] | None = None  # None: the method's own


@dataclass(frozen=True, eq=False)
class Settled:
    """A draw before any test image is read: what each candidate took, and the heads that came of it."""

    draw: Draw
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
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--work", type=Path, default=Path("work"), help="for models, caches and settings")
    for option, meaning in further.items():
        parser.add_argument(option, help=meaning)
    args = parser.parse_args()
    args.artifact = args.artifact or list(artifacts)
    args.model = "demo" if args.root is None else "resnet18"
    args.work.mkdir(parents=True, exist_ok=True)
    return args


def draw_models(args: argparse.Namespace, artifact: str) -> Iterator[Draw]:
    """Yield biased models with their images at the layer; in place of the test images are the validation images."""
    if args.root is None:
        yield from _networks(args, artifact)
        return
    study = hf.Study.named("table")(args.root, artifact=artifact, biased_class=args.biased_class, size=args.size)
    plan = Plan(model=args.model, weights=args.weights, trained="head", epochs=args.epochs, corrected="last")
    data = study.data(args.model)
    blind = replace(data, test_clean=data.val_clean, test_biased=data.val_biased)
    with open_subject(study, plan, args.work) as subject:
        for draw in make_draws(subject, blind, range(args.draws)):
            yield replace(draw, data=data)


def _networks(args: argparse.Namespace, artifact: str) -> Iterator[Draw]:
    study = hf.Study.named("synthetic")(artifact=artifact, size=args.size)
    data = study.data(args.model)
    seen = {name: in_memory(getattr(data, name)) for name in ("train", "train_biased", "val_clean", "val_biased")}
    data = replace(data, **seen)
    for seed in range(args.draws):
        plan = Plan(model=args.model, epochs=args.epochs, seed=seed)
        model, _ = BaseModels(study=study, plan=plan, work=args.work).trained(_learned(args.size), "biased model")
        yield _drawn(args, model, data, tuning_for(study, args.model, seed=seed))


@lru_cache(maxsize=6)
def in_memory(images: ExampleSet) -> hf.InMemory:
    """Draw images once: all networks of the embedded suite see the same."""
    return hf.InMemory(images)


@lru_cache(maxsize=1)
def _learned(size: int | None) -> hf.InMemory:
    """Return what the networks learn from, all shortcuts in it: the same pictures whatever artifact is asked about."""
    return hf.InMemory(hf.Study.named("synthetic")(size=size).data("demo").learned)


def _drawn(args: argparse.Namespace, model: nn.Module, data: hf.BiasedData, tuning: hf.FineTuning) -> Draw:
    """Return a draw of a whole network; no clean-trained one stands beside it."""

    def look(images: ExampleSet) -> Activations:
        layer = architecture_named(args.model).layer
        return collect_activations(model, layer, images, folder=args.work / "activations")

    train, val = look(data.train), Twins(look(data.val_clean), look(data.val_biased))
    return Draw(
        number=tuning.seed,
        kind="whole",
        biased_class=data.biased_class,
        model=model,
        reference=model,
        clean=train,
        train=train,
        pairs=Twins(*map(look, data.pairs or ())),
        val=val,
        test=val,
        corrected="all",
        cut=cut_again(model, train),
        tuning=tuning,
        data=data,
    )


def with_test(args: argparse.Namespace, draw: Draw) -> Draw:
    """Return the draw with its test images, which are read here for the first time."""
    sets = [draw.data.test_clean, draw.data.test_biased]
    if args.root is None:
        sets = [in_memory(images) for images in sets]
    look = (collect_activations(draw.model, draw.train.layer, each, folder=args.work / "activations") for each in sets)
    return replace(draw, test=Twins(*look))


def train_head(args: argparse.Namespace, draw: Draw, model: nn.Module, images: Activations) -> nn.Module:
    """Return the model with all that follows the layer trained on images, as the heads of the draws are trained."""
    rate = architecture_named(args.model).head_rate
    tuning = hf.FineTuning(optimizer="adam", learning_rate=rate, epochs=args.epochs or 30, seed=draw.number)
    return hf.Vanilla(tuning=tuning).correct(model, images)


def learn_direction(draw: Draw, direction: str, pooling: str = "max") -> hf.CAV:
    """Return the direction of the draw's training images: "signal" of marked ones, "pair-1" of pairs."""
    return fit_cav(Entrant(name="", title="", method="rr-clarc", direction=direction, pooling=pooling), draw)


def settle(draw: Draw, candidates: Mapping[str, Candidate], *, judge: Judge | None = None) -> Settled:
    """Train every candidate along its strengths, and let its rule take one by validation images.

    Args:
        judge: None is by the draw's validation images, as in a run.
    """
    judge = judge or make_validator(draw)
    (original,) = judge(Heads(draw.cut, 1, draw.tuning.device))
    strengths: dict[str, float | None] = {}
    heads: dict[str, State] = {"": draw.cut.head_parameters()}
    paths: dict[Callable[[Draw], hf.Correction], list[TrainedHead]] = {}  # two rules may look at one path
    for name, candidate in candidates.items():
        if candidate.make not in paths:
            method = candidate.make(draw)
            wanted = candidate.strengths or method.grid
            paths[candidate.make] = list(method.train(draw.cut, draw.train, wanted, watch=judge))
        path = paths[candidate.make]
        place = candidate.rule.choose([head.history[-1] for head in path], original).index
        strengths[name] = None if place is None else path[place].strength
        heads[name] = heads[""] if place is None else path[place].state
    return Settled(draw, strengths, heads)


def write_settings(args: argparse.Namespace, script: str, artifact: str, settled: Sequence[Settled]) -> None:
    """Append what was taken to WORK, before test images are read."""
    with (args.work / f"{Path(script).stem}.jsonl").open("a") as file:
        for each in settled:
            written = {"artifact": artifact, "draw": each.draw.number, "strengths": each.strengths}
            file.write(f"{json.dumps(written)}\n")


def ask(args: argparse.Namespace, settled: Sequence[Settled]) -> tuple[dict[str, DrawAnswers], np.ndarray]:
    """Return what all heads answer on test images, over the draws, and the labels; "" is the biased model."""
    found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for each in settled:
        draw = with_test(args, each.draw)
        for name, state in each.heads.items():
            found.setdefault(name, []).append(answers(draw, state, None))
    joined = {name: DrawAnswers(*map(np.stack, zip(*said))) for name, said in found.items()}
    return joined, np.asarray(settled[0].draw.data.test_clean.labels)


def describe(said: Mapping[str, DrawAnswers], labels: np.ndarray, names: Sequence[str], measure: str) -> str:
    """Return the means over the draws in per cent."""
    return ", ".join(f"{100 * said[name].score(labels, measure).mean():.1f}" for name in names)


class Tally:
    """Counts wins, ties and losses by both measures, and words differences."""

    def __init__(self) -> None:
        self.signs: dict[str, Counter[int]] = {WITH_IT: Counter(), FLIPS: Counter()}

    def compare(self, said: Mapping[str, DrawAnswers], labels: np.ndarray, new: str, old: str, measure: str) -> str:
        """Return the difference with its 95 % interval, and count it."""
        lead = compare(said[new], said[old], labels, measure)
        self.signs[measure][lead.sign if measure == WITH_IT else -lead.sign] += 1
        return f"{100 * lead.value:+.1f} ({100 * lead.low:+.1f} to {100 * lead.high:+.1f})"

    def __str__(self) -> str:
        told = (
            f"by {words}: {signs[1]} wins, {signs[0]} ties, {signs[-1]} losses"
            for words, signs in zip(("balanced accuracy with the artifact", "flips"), self.signs.values())
        )
        return "; ".join(told)


def print_comparisons(
    args: argparse.Namespace,
    script: str,
    draws: Callable[[str], Iterator[Draw]],
    candidates: Mapping[str, Candidate],
    rivals: Mapping[str, str],
) -> None:
    """Print a table: every new candidate against its old rival, for every artifact.

    Args:
        draws: of an artifact.
        rivals: old candidates by new ones.
    """
    tally = Tally()
    print("| artifact | new, old | balanced with it: as it came, old, new | difference | flips | difference |")
    print("|---|---|---|---|---|---|", flush=True)
    for artifact in args.artifact:
        settled = [settle(draw, candidates) for draw in draws(artifact)]
        write_settings(args, script, artifact, settled)
        said, labels = ask(args, settled)
        for new, old in rivals.items():
            cells = [f"{artifact} | {new}, {old}"]
            for measure in (WITH_IT, FLIPS):
                cells.append(describe(said, labels, ("", old, new), measure))
                cells.append(tally.compare(said, labels, new, old, measure))
            print(f"| {' | '.join(cells)} |", flush=True)
    print(tally)
