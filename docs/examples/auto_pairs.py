"""Compare auto-pairs with true pairs, where the artifact can be inserted.

python docs/examples/auto_pairs.py FOLDER CLASS MODEL WEIGHTS ARTIFACT...

FOLDER has labels.csv; half of the training images of CLASS get the artifact. Only directions at the layer are compared,
so backbone weights suffice.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import hansfree as hf
from hansfree.data import ImageDataset
from hansfree.models import architecture_named
from hansfree_paper.dataset import BenchmarkDataset
from hansfree_paper.starts import start_model

root, biased_class, name, weights, *artifacts = sys.argv[1:]
layer = architecture_named(name).layer


def pooled(images: ImageDataset) -> np.ndarray:
    """Return the images at the layer."""
    return hf.collect_activations(model, layer, images).pooled


def direction(pairs: tuple[ImageDataset, ImageDataset]) -> np.ndarray:
    """Return the direction of their differences."""
    return hf.cavs.PairCAV(count=1).fit_pairs(*map(pooled, pairs)).direction_


print(f"{'artifact':12}  labelled images  auto-pairs       true pairs")
for artifact in artifacts:
    data = BenchmarkDataset.named("table")(Path(root), artifact=artifact, biased_class=biased_class, size=224).data(
        name
    )
    model = start_model(name, classes=len(data.train.class_names), weights=weights).eval()
    train = hf.collect_activations(model, layer, data.train)
    in_class = train.labels == data.biased_class
    cav = hf.SignalCAV().fit(train.pooled[in_class], train.has_artifact[in_class])
    auto = direction(hf.pipeline.make_auto_pairs(model, layer, cav, data.train))
    changes = pooled(data.test_biased) - pooled(data.test_clean)  # of true pairs of test images
    found = [hf.cavs.alignment_mean(each, changes) for each in (cav.direction_, auto, direction(data.pairs))]
    cells = [f"{each.value:.3f} ± {each.standard_error:.3f}" for each in found]
    print(f"{artifact:12}", *(f"{cell:15}" for cell in cells), sep="  ", flush=True)
