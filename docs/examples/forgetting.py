"""Correct the demo's network, probe it, and train it on the poisoned images again.

hansfree demo --out demo && python docs/examples/forgetting.py demo
"""

from __future__ import annotations

import sys
from pathlib import Path

import hansfree as hf

LAYER = "features.10"
images, unseen = hf.SyntheticLesions(4000, size=64), hf.SyntheticLesions(1000, size=64, start=5000)
train = hf.data.InMemory(hf.WithArtifact(images, hf.Timestamp(), share=0.5, only_class=0))
clean, biased = (hf.data.InMemory(hf.WithArtifact(unseen, hf.Timestamp(), share=share)) for share in (0.0, 1.0))

model = hf.build_model("demo", classes=4, weights=Path(sys.argv[1]) / "model.safetensors").eval()
poisoned = hf.collect_activations(model, LAYER, train)
held_out = {
    "clean": hf.collect_activations(model, LAYER, clean),
    "biased": hf.collect_activations(model, LAYER, biased),
}
in_class = poisoned.labels == 0
cav = hf.SignalCAV().fit(poisoned.pooled[in_class], poisoned.has_artifact[in_class])
fixed = hf.RRClArC(cav, strength=20).correct(model, poisoned)

before, after = (hf.evaluation.probe_artifact(each, **held_out) for each in (model, fixed))
print(hf.evaluation.Forgetting(before, after).describe())

slow = hf.FineTuning(optimizer="adam", learning_rate=1e-4, epochs=20, batch_size=128)
curves = [
    hf.evaluation.relearn(each, poisoned, **held_out, biased_class=0, tuning=slow)
    for each in (model, fixed, hf.evaluation.reset_head(model, poisoned))
]
print(hf.evaluation.Relearning(*curves).describe())

for name, each, probe in (("model", model, before), ("head corrected", fixed, after)):
    scores = {score.metric: score for score in hf.evaluate(each, **held_out, biased_class=0)}
    wanted = [scores[metric] for metric in ("accuracy_clean", "accuracy_biased", "flip_rate", "probability_change")]
    left = hf.evaluation.Forgetting(before, probe).remaining
    print(f"{name:16}", *(f"{score.metric} {score.value:.2f}" for score in [*wanted, left]), sep="  ")
