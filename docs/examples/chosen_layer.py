"""Does the layer that the images choose lead to a better correction than `layer: auto`? Asked over several draws.

python docs/examples/chosen_layer.py
python docs/examples/chosen_layer.py --root FOLDER --biased-class MEL --model resnet18 --weights FILE --size 112

Embedded lesions: one model, trained once; each draw corrects it with other training images. With --root, the images of
a table: in each draw others carry the artifact, and the head is trained anew. Layers and strengths are chosen on
training and validation images and written to WORK/chosen_layer.jsonl before the artifact's test images are read.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from torch import nn

import hansfree as hf
from hansfree._internal.progress import silent
from hansfree.activations import cut_again
from hansfree.corrections.training import tuning_for
from hansfree.datasets import Part
from hansfree.experiments import Setting
from hansfree.experiments.subjects import BaseModels
from hansfree.experiments.workspace import Plan
from hansfree.layer_choice import STRENGTHS, Trial, try_layer
from hansfree.metrics import predict_classes
from hansfree.models import predict_logits
from hansfree.tournament import MEASURES, DrawAnswers, compare


@dataclass(frozen=True)
class Settled:
    """A draw's models before any test image is read: as it came, corrected at `auto`, and at the chosen layer."""

    data: hf.BiasedData
    layers: dict[str, str]
    strengths: dict[str, float | None]  # None: no strength was admissible, and the model stays as it was
    models: dict[str, nn.Module]


def read_arguments() -> argparse.Namespace:
    """Read what to measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="folder of a table of images; without it, the embedded lesions")
    parser.add_argument("--biased-class", help="label that the artifact leaks into, with --root")
    parser.add_argument("--artifact", action="append", help="repeat for several; all of the embedded ones by default")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--weights", help="of the backbone, with --root")
    parser.add_argument("--epochs", type=int, help="of training the model, or its head")
    parser.add_argument("--size", type=int, help="side of the images in pixels")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--corrected", choices=("all", "last"), default="last", help="what corrections fine-tune")
    parser.add_argument("--tries", type=int, default=3, help="layers at which a correction is tried")
    parser.add_argument("--images", type=int, default=1000, help="training images that score the layers")
    parser.add_argument("--work", type=Path, default=Path("work"), help="for models and settings; models are kept")
    return parser.parse_args()


def make_draws(args: argparse.Namespace, artifact: str) -> Iterator[tuple[hf.BiasedData, nn.Module, hf.FineTuning]]:
    """Yield biased models with their images, and how they are corrected."""
    if args.root is None:
        study = hf.Study.named("synthetic")(artifact=artifact, size=args.size)
        data, model = learn(study, Plan(model=args.model, epochs=args.epochs), args.work)
        for number in range(args.draws):  # of all that the model learned from, each sees as many as the study has
            rows = np.random.default_rng(number).choice(len(data.learned), len(data.train), replace=False)
            train = Part(data.learned, np.sort(rows))
            yield replace(data, train=train), model, tuning_for(study, args.model, seed=number)
        return
    for number in range(args.draws):
        options = {"biased_class": args.biased_class, "size": args.size, "seed": number}
        study = hf.Study.named("table")(args.root, artifact=artifact, **options)
        plan = Plan(model=args.model, weights=args.weights, trained="head", epochs=args.epochs, seed=number)
        yield *learn(study, plan, args.work), tuning_for(study, args.model, seed=number)


def learn(study: hf.Study, plan: Plan, work: Path) -> tuple[hf.BiasedData, nn.Module]:
    """Return the images, all but the test images in memory, and the model that learned from them."""
    data = study.data(plan.model)
    learned = hf.InMemory(data.learned)
    kept = {"val_clean": hf.InMemory(data.val_clean), "val_biased": hf.InMemory(data.val_biased)}
    train = learned if data.base_train is None else data.train
    data = replace(data, **kept, train=train, base_train=learned, train_biased=None)
    return data, BaseModels(study=study, plan=plan, work=work).trained(learned, "biased model")[0]


def settle(args: argparse.Namespace, data: hf.BiasedData, model: nn.Module, tuning: hf.FineTuning) -> Settled:
    """Choose the layer, take at both layers the strength of a trial, and correct; no test image is read."""
    options = {"confirm": args.tries, "images": args.images, "train": args.corrected}
    choice = hf.choose_layer(model, data, tuning=tuning, seed=tuning.seed, **options)
    auto = hf.recommend_layer(model, data.val_clean.batch(range(2)).image).layer
    layers = {"auto": auto, "chosen": choice.layer}
    strengths = {}
    for layer in layers.values():  # where no correction was admissible, one that was not tried may be the choice
        trial = choice.trials.get(layer) or try_one(args, data, model, layer, tuning)
        strengths[layer] = trial.strength
    models = dict.fromkeys(strengths, model)
    for layer, strength in strengths.items():
        if strength is not None:
            train = hf.collect_activations(model, layer, data.train)
            inside = train.labels == data.biased_class
            cav = hf.SignalCAV().fit(train.pooled[inside], train.has_artifact[inside])
            method, cut = hf.RRClArC(cav, tuning=tuning), cut_again(model, train, train=args.corrected)
            (head,) = method.train(cut, train, [strength])
            models[layer] = method.install(model, cut, train, head.state)
    return Settled(data, layers, strengths, {"": model, **models})


def try_one(
    args: argparse.Namespace, data: hf.BiasedData, model: nn.Module, layer: str, tuning: hf.FineTuning
) -> Trial:
    """Try a layer as `choose_layer` tries others: the same strengths, and the same rule."""
    setting = Setting(name=layer, data=data, model=model, layer=layer, tuning=tuning, train=args.corrected)
    with TemporaryDirectory(prefix="hansfree-layer-") as folder:
        return try_layer(setting, STRENGTHS, Path(folder), progress=silent)


@lru_cache(maxsize=2)
def in_memory(images: hf.ExampleSet) -> hf.InMemory:
    """Draw or read test images once: those of the embedded suite are the same in all draws."""
    return hf.InMemory(images)


def ask(settled: Settled) -> dict[str, DrawAnswers]:
    """Return what the models answer for the test images."""
    clean, biased = in_memory(settled.data.test_clean), in_memory(settled.data.test_biased)
    found = {
        layer: DrawAnswers(*(predict_classes(predict_logits(model, images))[None] for images in (clean, biased)))
        for layer, model in settled.models.items()
    }
    return {"model": found[""], **{name: found[layer] for name, layer in settled.layers.items()}}


def report(draws: Sequence[Settled], labels: np.ndarray) -> int:
    """Print the scores on test images; return whether the chosen layer is above (1), level (0) or below (-1)."""
    asked = [ask(draw) for draw in draws]
    joined = {
        name: DrawAnswers(
            *(np.concatenate([getattr(each[name], part) for each in asked]) for part in ("clean", "biased"))
        )
        for name in asked[0]
    }
    for measure in MEASURES:
        scores = {name: answers.score(labels, measure) for name, answers in joined.items()}
        lead = compare(joined["chosen"], joined["auto"], labels, measure)
        signs = Counter(np.sign(scores["chosen"] - scores["auto"]).tolist())
        means = "  ".join(f"{name} {100 * each.mean():.1f}" for name, each in scores.items())
        interval = f"{100 * lead.value:+.1f} ({100 * lead.low:+.1f} to {100 * lead.high:+.1f})"
        counts = "/".join(str(signs[sign]) for sign in (1, 0, -1))
        print(f"  {measure:24}  {means}  difference {interval}  draws above/same/below {counts}", flush=True)
    return compare(joined["chosen"], joined["auto"], labels, "balanced_accuracy_biased").sign


def main() -> None:
    """Measure every artifact, and count wins, ties and losses."""
    args = read_arguments()
    study = hf.Study.named("synthetic" if args.root is None else "table")
    args.work.mkdir(parents=True, exist_ok=True)
    signs = []
    for artifact in args.artifact or (study.artifacts if args.root is None else study.artifacts[:1]):
        print(artifact, flush=True)
        draws = [settle(args, *draw) for draw in make_draws(args, artifact)]
        with (args.work / "chosen_layer.jsonl").open("a") as file:
            for number, draw in enumerate(draws):
                written = {"artifact": artifact, "draw": number, **draw.layers, "strengths": draw.strengths}
                file.write(f"{json.dumps(written)}\n")
                told = {name: f"{layer} at {draw.strengths[layer]}" for name, layer in draw.layers.items()}
                print(f"  draw {number}: auto {told['auto']}, chosen {told['chosen']}", flush=True)
        labels = np.asarray(draws[0].data.test_clean.labels)
        for test in (part for draw in draws for part in (draw.data.test_clean, draw.data.test_biased)):
            if not np.array_equal(test.labels, labels):
                raise SystemExit(f"{artifact}: draws need the same test images without and with the artifact.")
        signs.append(report(draws, labels))
    wins, ties, losses = (signs.count(sign) for sign in (1, 0, -1))
    print(f"chosen against auto, by balanced accuracy with the artifact: {wins} wins, {ties} ties, {losses} losses")


if __name__ == "__main__":
    main()
