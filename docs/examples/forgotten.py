"""Does RR-ClArC forget, and does the second stage help? Over networks of several seeds, or draws of a table.

python docs/examples/forgotten.py
python docs/examples/forgotten.py --root real/redrawn --biased-class MEL --weights real/weights/... --size 64

RR-ClArC corrects the head by the paper's recipe, its strength chosen on validation images. Then all layers are trained
for two epochs, with the penalty at the same strength, without it (the control), and without it on pairs: images without
the artifact, and the same ones with it put in, for as many steps. A fresh probe looks for the artifact in what each
model computes, and the poisoned images try to bring it back. Mind --size: all layers of ResNet-18 are trained fifteen
times for each artifact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from comparing import (
    FLIPS,
    WITH_IT,
    Candidate,
    Settled,
    Tally,
    describe,
    draw_models,
    in_memory,
    learn_direction,
    read_arguments,
    settle,
    write_settings,
)
from torch import nn
from torch.utils.data import ConcatDataset

import hansfree as hf
from hansfree.datasets import ExampleSet
from hansfree.metrics import predict_classes
from hansfree.models import predict_logits
from hansfree.tournament import Draw, DrawAnswers

GENTLE = hf.FineTuning(optimizer="adam", learning_rate=1e-4, epochs=2, batch_size=64)  # of all layers
SLOW = hf.FineTuning(optimizer="adam", learning_rate=1e-4, epochs=20, batch_size=128)  # of relearning
MODEL, HEAD, WHOLE, CONTROL, FRESH = "as it came", "head corrected", "then all layers", "without penalty", "fresh head"
PAIRED = "all layers, pairs"
Images = Sequence[hf.Example] | ExampleSet | ConcatDataset[hf.Example]


@dataclass(frozen=True, eq=False)
class Seen:
    """What one model does on test images."""

    answers: tuple[np.ndarray, np.ndarray]
    probe: hf.Probe
    curve: hf.RelearningCurve


def learned_from(draw: Draw) -> tuple[Images, Images]:
    """Return the images of a draw, and the pairs that can be made of them.

    Of a table, each draw has the artifact in others than the study itself.
    """
    train, clean = draw.data.train, draw.data.clean_train
    if not isinstance(train, hf.Stamped) or clean is None:
        return train, ConcatDataset(draw.data.pairs or ())
    full = hf.Stamped(train.source, train.artifact, share=1, seed=train.seed, transform=train.transform)
    bits = np.asarray(draw.train.has_artifact)
    pairs = [each[row] for row in np.flatnonzero(~bits) for each in (clean, full)]
    return [(full if bit else clean)[row] for row, bit in enumerate(bits)], pairs


def train_all(settled: Settled, images: Images, pairs: Images) -> dict[str, nn.Module]:
    """Return the models of a draw; no test image is read."""
    draw = settled.draw
    layer = draw.train.layer
    fixed = draw.cut.model_with(settled.heads["rr-clarc"], draw.model)
    strength = settled.strengths["rr-clarc"] or 1.0  # where none was admissible, the head is as it came
    method = hf.RRClArC(hf.SignalCAV(), strength=strength, tuning=replace(GENTLE, seed=draw.number))
    control = hf.Vanilla(tuning=method.tuning)
    on_pairs = hf.Vanilla(tuning=replace(method.tuning, epochs=GENTLE.epochs // 2))  # twice as many images
    return {
        MODEL: draw.model,
        HEAD: fixed,
        WHOLE: hf.correct_all_layers(fixed, layer, method, images, biased_class=draw.biased_class),
        CONTROL: hf.correct_all_layers(fixed, layer, control, images),
        PAIRED: hf.correct_all_layers(fixed, layer, on_pairs, pairs),
        FRESH: hf.reset_head(draw.model, draw.train, seed=draw.number),
    }


def look(settled: Settled, images: Images, model: nn.Module) -> Seen:
    """Ask a model, probe it and tempt it, with activations of its own."""
    data, layer = settled.draw.data, settled.draw.train.layer
    sets = [in_memory(images) for images in (data.test_clean, data.test_biased)]
    clean, biased = (hf.collect_activations(model, layer, images) for images in sets)
    poisoned = hf.collect_activations(model, layer, images)
    held_out = {"clean": clean, "biased": biased}
    said = tuple(predict_classes(predict_logits(model, images)) for images in sets)
    curve = hf.relearn(model, poisoned, **held_out, biased_class=data.biased_class, tuning=SLOW)
    return Seen(said, hf.probe_artifact(model, **held_out), curve)  # type: ignore[arg-type]


def row(name: str, seen: dict[str, list[Seen]], said: dict[str, DrawAnswers], labels: np.ndarray) -> str:
    """Return the means over the networks; steps until half of the effect is back, and in how many it was."""
    probes, curves = ([getattr(each, part) for each in seen[name]] for part in ("probe", "curve"))
    left = [hf.Forgetting(first.probe, probe).remaining.value for first, probe in zip(seen[MODEL], probes)]
    halves = [first.curve.probability_change[0].value / 2 for first in seen[MODEL]]
    steps = [curve.steps_until(half) for curve, half in zip(curves, halves)]
    back = [step for step in steps if step is not None]
    cells = [describe(said, labels, [name], measure) for measure in ("balanced_accuracy_clean", WITH_IT, FLIPS)]
    cells += [f"{np.mean([getattr(probe, place).value for probe in probes]):.2f}" for place in ("logits", "hidden")]
    cells += [f"{100 * np.mean(left):.0f}", f"{np.mean(back):.0f} ({len(back)} of {len(steps)})" if back else "never"]
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Print what is left of every artifact, and what the second stage changes."""
    args = read_arguments(__doc__, ("timestamp", "lsb"))
    candidates = {"rr-clarc": Candidate(lambda draw: hf.RRClArC(learn_direction(draw, "signal"), tuning=draw.tuning))}
    for artifact in args.artifact:
        settled = [settle(draw, candidates) for draw in draw_models(args, artifact)]
        write_settings(args, __file__, artifact, settled)
        images, pairs = zip(*(learned_from(each.draw) for each in settled))
        models = [train_all(*each) for each in zip(settled, images, pairs)]
        seen = {name: [look(*each, its[name]) for *each, its in zip(settled, images, models)] for name in models[0]}
        said = {name: DrawAnswers(*map(np.stack, zip(*(each.answers for each in its)))) for name, its in seen.items()}
        labels = np.asarray(settled[0].draw.data.test_clean.labels)
        print(f"\n| {artifact} | clean | with it | flips | AUC, logits | AUC, hidden | change left | steps to half |")
        print("|---|---|---|---|---|---|---|---|")
        print("\n".join(row(name, seen, said, labels) for name in models[0]))
        tally = Tally()
        for new, old in ((HEAD, MODEL), (WHOLE, HEAD), (WHOLE, CONTROL), (PAIRED, HEAD), (PAIRED, CONTROL)):
            leads = [tally.compare(said, labels, new, old, measure) for measure in (WITH_IT, FLIPS)]
            print(f"{new} minus {old}: balanced accuracy with it {leads[0]}, flips {leads[1]}", flush=True)


if __name__ == "__main__":
    main()
