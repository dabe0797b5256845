"""The library as an editor sees it: every name has a type. A test checks this file with pyright in strict mode."""

from __future__ import annotations

from pathlib import Path

from torch import nn

import hansfree as hf

images = hf.WithArtifact(hf.SyntheticLesions(1200, size=16), hf.Timestamp(), share=0.5, only_class=0)
model: nn.Module = hf.build_model("demo", classes=4)
layer: str = hf.recommend_layer(model, images.batch([0, 1]).image).layer
names: list[str] = [each.name for each in hf.list_layers(model)]
acts: hf.Activations = hf.collect_activations(model, layer, images)

cav: hf.CAV = hf.SignalCAV()
others: list[hf.CAV] = [hf.PairCAV(), hf.RidgeCAV(), hf.SVMCAV(), hf.LassoCAV(), hf.LogisticCAV()]
tuning = hf.FineTuning(epochs=2, learning_rate=1e-3)
corrections: list[hf.Correction] = [
    hf.RRClArC(cav, strength=1.0, tuning=tuning),
    hf.PClArC(cav),
    hf.AClArC(cav),
    hf.Vanilla(),
    hf.Match(strength=3.0),
]
path = hf.RRClArC(cav).path(model, acts, validation=acts, strengths=[1.0, 10.0])
best: nn.Module | None = None if path.best is None else path.best.model
for line in path.table():
    print(line["strength"], line["is_best"])

result: hf.Result = hf.unlearn(
    model, images, artifact=hf.Patch("ruler.png"), callbacks=[hf.callbacks.TensorBoard("logs")]
)
fixed: nn.Module = result.model
scores: hf.Scores = result.scores["flip_rate"]
differences: list[tuple[str, float, float]] = [(each.metric, each.low, each.high) for each in scores.compare(scores)]
level: str = result.verdict.level.value
page: Path = result.report("report.html")
again: hf.Result = hf.load(result.save("saved"), model)
depth = again.diagnostics.depth
first: int | None = None if depth is None else depth.first
direction = result.cav.directions_
print(scores[0].value, direction.shape, level, page, first, hf.erase(direction, [0]).shape, hf.Eraser("leace"))

heatmaps = hf.compute_heatmaps(fixed, images.batch([0]).image, target=0)
values: list[float] = [
    score.value for score in hf.evaluate(fixed, clean=acts, biased=None, biased_class=0, inserted=False)
]
monitor: hf.Monitor = hf.Monitor.fit(model, cav, clean=images, test_clean=images, layer=layer)
print(heatmaps.shape, values, monitor.threshold, hf.Brightness(), hf.LSB(), hf.Normalize(), best, names, differences)
