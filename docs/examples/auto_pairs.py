"""How near auto-pairs come to true pairs: measured where the artifact can be inserted, so that the truth is known.

python docs/examples/auto_pairs.py FOLDER CLASS MODEL WEIGHTS ARTIFACT...

FOLDER has labels.csv; half of the training images of CLASS get the artifact. The layer's directions are compared, so
the weights of a backbone will do.
"""

from __future__ import annotations

import sys
from pathlib import Path

import hansfree as hf
from hansfree.models import architecture_named

root, biased_class, name, weights, *artifacts = sys.argv[1:]
layer = architecture_named(name).layer
print(f"{'artifact':12}  marked images    auto-pairs       true pairs")
for artifact in artifacts:
    data = hf.Study.named("table")(Path(root), artifact=artifact, biased_class=biased_class, size=224).data(name)
    model = hf.build_model(name, classes=len(data.train.class_names), weights=Path(weights)).eval()
    train = hf.collect_activations(model, layer, data.train)
    inside = train.labels == data.biased_class
    cav = hf.SignalCAV().fit(train.pooled[inside], train.has_artifact[inside])
    found = hf.measure_auto_pairs(model, layer, cav, data)
    cells = [f"{each.value:.3f} ± {each.standard_error:.3f}" for each in (found.marked, found.auto, found.true)]
    print(f"{artifact:12}", *(f"{cell:15}" for cell in cells), sep="  ", flush=True)
