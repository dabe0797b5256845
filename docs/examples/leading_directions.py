"""What the leading directions of the images cost: VGG-16's path of 22 strengths, along all directions and along a few.

python docs/examples/leading_directions.py FOLDER CLASS MODEL WEIGHTS IMAGES LEADING WORK

FOLDER has labels.csv; half of the training images of CLASS get a timestamp. Of all, IMAGES are taken evenly; they
train a head on the backbone's WEIGHTS, and correct it. Few images can be trained along all of their directions, so
LEADING is made as small as 2,048 would be for many: of 10,000 images with their tangents 2,048 directions are a tenth,
and of 800 images 160 are. WORK keeps the activations.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import hansfree as hf
from hansfree.activations import compute_features, cut_again
from hansfree.corrections.training import Heads, TrainedHead
from hansfree.datasets import Part
from hansfree.models import architecture_named

root, biased_class, name, weights, images, leading, work = sys.argv[1:]
layer = architecture_named(name).layer
data = hf.Study.named("table")(Path(root), artifact="timestamp", biased_class=biased_class, size=224).data(name)
model = hf.build_model(name, classes=len(data.train.class_names), weights=Path(weights)).eval()
some = Part(data.train, np.linspace(0, len(data.train) - 1, int(images)).astype(int))
train, *unseen = (
    hf.collect_activations(model, layer, part, folder=Path(work), precision="float16")
    for part in (some, data.test_clean, data.test_biased)
)


def walk(tuning: hf.FineTuning) -> Iterator[TrainedHead]:
    """Train a head per strength; its history has the accuracies without and with the artifact, and the flip rate."""
    cut = cut_again(model, train)
    features = [compute_features(cut, each) for each in unseen]

    def score(heads: Heads) -> list[tuple[float, ...]]:
        answers = [heads.logits(each).argmax(2).numpy() for each in features]
        right = [(answer == each.labels).mean(1) for answer, each in zip(answers, features)]
        rates = zip(*right, (answers[0] != answers[1]).mean(1))
        return [tuple(100 * rate for rate in each) for each in rates]

    return hf.RRClArC(cav, tuning=tuning).train(cut, train, hf.RRClArC.grid, watch=score)


poisoned = hf.Vanilla(tuning=hf.FineTuning(learning_rate=3e-3, epochs=25, batch_size=64))
for head in poisoned.train(cut_again(model, train), train, [0.0]):
    model.load_state_dict({**model.state_dict(), **head.state})
inside = train.labels == data.biased_class
cav = hf.SignalCAV().fit(train.pooled[inside], train.has_artifact[inside])
print("strength     all: clean biased flips  leading: clean biased flips  difference, biased")
apart = []
paths = [walk(hf.FineTuning(batch_size=64, leading=each)) for each in ("all", int(leading))]
for whole, few in zip(*paths):
    if not (whole.is_finite and few.is_finite):
        print(f"{whole.strength:8g}    diverged: all {not whole.is_finite}, leading {not few.is_finite}", flush=True)
        continue
    apart.append(few.history[-1][1] - whole.history[-1][1])
    cells = ("".join(f"{value:7.1f}" for value in each.history[-1]) for each in (whole, few))
    print(f"{whole.strength:8g}", *cells, f"{apart[-1]:9.1f}", sep="    ", flush=True)
print(f"largest difference with the artifact: {max(map(abs, apart)):.1f} points")
