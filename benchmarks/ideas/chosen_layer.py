"""Does layer search lead to a better correction than `layer: auto`? Over several resamples.

python -m benchmarks.ideas.chosen_layer
python -m benchmarks.ideas.chosen_layer --root FOLDER --artifact timestamp --biased-class MEL --weights FILE --size 112

Embedded lesions: one model; each resample corrects it with other training images. With --root, the images of a table:
each resample inserts the artifact into other images and retrains the head. Layers and strengths are chosen on
training and validation images and written to WORK/chosen_layer.jsonl before the artifact's test images are read.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from torch import nn

import hansfree as hf
from benchmarks.comparison import MEASURES, Answers, compare
from benchmarks.ideas.shared import in_memory, read_arguments
from hansfree._internal.progress import silent
from hansfree.activations import cut_at
from hansfree.data.datasets import Subset
from hansfree.metrics import predict_classes
from hansfree.models import predict_logits
from hansfree.pipeline.layer_search import STRENGTHS, Trial, try_layer
from hansfree.pipeline.workspace import Setting
from hansfree_paper.dataset import BenchmarkDataset
from hansfree_paper.subjects import BaseModels, Plan, tuning_for


@dataclass(frozen=True)
class Selected:
    """The models of a resample: original, corrected at `auto`, and corrected at the chosen layer."""

    data: hf.data.BiasedData
    layers: dict[str, str]
    strengths: dict[str, float | None]  # None: no strength was admissible, and the model stays as it was
    models: dict[str, nn.Module]


def iter_resamples(
    args: argparse.Namespace, artifact: str
) -> Iterator[tuple[hf.data.BiasedData, nn.Module, hf.FineTuning]]:
    """Yield biased models with their images, and how they are corrected."""
    if args.root is None:
        study = BenchmarkDataset.named("synthetic")(artifact=artifact, size=args.size)
        data, model = learn(study, Plan(model=args.model, epochs=args.epochs), args.work)
        for number in range(args.resamples):  # of all that the model learned from, each sees as many as the study has
            rows = np.random.default_rng(number).choice(len(data.learned), len(data.train), replace=False)
            train = Subset(data.learned, np.sort(rows))
            yield replace(data, train=train), model, tuning_for(study, args.model, seed=number)
        return
    for number in range(args.resamples):
        options = {"biased_class": args.biased_class, "size": args.size, "seed": number}
        study = BenchmarkDataset.named("table")(args.root, artifact=artifact, **options)
        plan = Plan(model=args.model, weights=args.weights, trained="head", epochs=args.epochs, seed=number)
        yield *learn(study, plan, args.work), tuning_for(study, args.model, seed=number)


def learn(study: BenchmarkDataset, plan: Plan, work: Path) -> tuple[hf.data.BiasedData, nn.Module]:
    """Return the images, all but the test images in memory, and the model that learned from them."""
    data = study.data(plan.model)
    learned = hf.data.InMemory(data.learned)
    kept = {"val_clean": hf.data.InMemory(data.val_clean), "val_biased": hf.data.InMemory(data.val_biased)}
    train = learned if data.base_train is None else data.train
    data = replace(data, **kept, train=train, base_train=learned, train_biased=None)
    return data, BaseModels(study=study, plan=plan, work=work).trained(learned, "biased model")[0]


def select(data: hf.data.BiasedData, model: nn.Module, tuning: hf.FineTuning) -> Selected:
    """Choose the layer, take at both layers the strength of a trial, and correct; no test image is read."""
    choice = hf.choose_layer(model, data, tuning=tuning, seed=tuning.seed, train="last")
    auto = hf.recommend_layer(model, data.val_clean.batch(range(2)).image).layer
    layers = {"auto": auto, "chosen": choice.layer}
    strengths = {}
    for layer in layers.values():  # where no correction was admissible, one that was not tried may be the choice
        trial = choice.trials.get(layer) or try_one(data, model, layer, tuning)
        strengths[layer] = trial.strength
    models = dict.fromkeys(strengths, model)
    for layer, strength in strengths.items():
        if strength is not None:
            train = hf.collect_activations(model, layer, data.train)
            inside = train.labels == data.biased_class
            cav = hf.SignalCAV().fit(train.pooled[inside], train.has_artifact[inside])
            method, cut = hf.RRClArC(cav, tuning=tuning), cut_at(model, train, train="last")
            (head,) = method.train(cut, train, [strength])
            models[layer] = method.install(model, cut, train, head.state)
    return Selected(data, layers, strengths, {"": model, **models})


def try_one(data: hf.data.BiasedData, model: nn.Module, layer: str, tuning: hf.FineTuning) -> Trial:
    """Try a layer as `choose_layer` tries others: the same strengths, and the same rule."""
    setting = Setting(name=layer, data=data, model=model, layer=layer, tuning=tuning, train="last")
    with TemporaryDirectory(prefix="hansfree-layer-") as folder:
        return try_layer(setting, STRENGTHS, Path(folder), progress=silent)


def predict(selected: Selected) -> dict[str, Answers]:
    """Return what the models answer for the test images."""
    clean, biased = in_memory(selected.data.test_clean), in_memory(selected.data.test_biased)
    found = {
        layer: Answers(*(predict_classes(predict_logits(model, images))[None] for images in (clean, biased)))
        for layer, model in selected.models.items()
    }
    return {"model": found[""], **{name: found[layer] for name, layer in selected.layers.items()}}


def report(resamples: Sequence[Selected], labels: np.ndarray) -> int:
    """Print the scores on test images; return whether the chosen layer is above (1), level (0) or below (-1)."""
    predicted = [predict(resample) for resample in resamples]
    joined = {
        name: Answers(
            *(np.concatenate([getattr(each[name], part) for each in predicted]) for part in ("clean", "biased"))
        )
        for name in predicted[0]
    }
    for measure in MEASURES:
        scores = {name: answers.score(labels, measure) for name, answers in joined.items()}
        lead = compare(joined["chosen"], joined["auto"], labels, measure)
        signs = Counter(np.sign(scores["chosen"] - scores["auto"]).tolist())
        means = "  ".join(f"{name} {100 * each.mean():.1f}" for name, each in scores.items())
        interval = f"{100 * lead.value:+.1f} ({100 * lead.low:+.1f} to {100 * lead.high:+.1f})"
        counts = "/".join(str(signs[sign]) for sign in (1, 0, -1))
        print(f"  {measure:24}  {means}  difference {interval}  resamples above/same/below {counts}", flush=True)
    return compare(joined["chosen"], joined["auto"], labels, "balanced_accuracy_biased").sign


def main() -> None:
    """Measure every artifact, and count wins, ties and losses."""
    args = read_arguments(__doc__, BenchmarkDataset.named("synthetic").artifacts)
    signs = []
    for artifact in args.artifact:
        print(artifact, flush=True)
        resamples = [select(*resample) for resample in iter_resamples(args, artifact)]
        with (args.work / "chosen_layer.jsonl").open("a") as file:
            for number, resample in enumerate(resamples):
                written = {"artifact": artifact, "resample": number, **resample.layers, "strengths": resample.strengths}
                file.write(f"{json.dumps(written)}\n")
                words = {name: f"{layer} at {resample.strengths[layer]}" for name, layer in resample.layers.items()}
                print(f"  resample {number}: auto {words['auto']}, chosen {words['chosen']}", flush=True)
        labels = np.asarray(resamples[0].data.test_clean.labels)
        for test in (part for resample in resamples for part in (resample.data.test_clean, resample.data.test_biased)):
            if not np.array_equal(test.labels, labels):
                raise SystemExit(f"{artifact}: resamples need the same test images without and with the artifact.")
        signs.append(report(resamples, labels))
    wins, ties, losses = (signs.count(sign) for sign in (1, 0, -1))
    print(f"chosen against auto, by balanced accuracy with the artifact: {wins} wins, {ties} ties, {losses} losses")


if __name__ == "__main__":
    main()
