"""A new CAV, correction, artifact, metric and dataset, used together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

import hansfree as hf
from hansfree.extend import (
    BiasedData,
    Callback,
    CAVCorrection,
    Evidence,
    FeatureSpec,
    FunctionalHead,
    HeadBatch,
    MethodInfo,
    Metric,
    Need,
    Pretraining,
    Score,
    Stage,
    insert_bias,
    pretrain,
)
from hansfree_paper.dataset import BenchmarkDataset, Recipe


# --8<-- [start:cav]
class MedianCAV(hf.CAV, name="median"):
    """The difference of two medians, robust to a few wrong artifact labels."""

    def _direction(self, X: np.ndarray, has_artifact: np.ndarray) -> np.ndarray:
        return np.median(X[has_artifact], axis=0) - np.median(X[~has_artifact], axis=0)


# --8<-- [end:cav]


# --8<-- [start:correction]
class Steady(CAVCorrection, name="steady"):
    """Penalise the change of the logits over a whole step along the artifact, where RR-ClArC uses the derivative."""

    info = MethodInfo(title="Steady", strengths=(0.01, 0.1, 1.0, 10.0), needs=frozenset({Need.CAV}))

    def features(self, activations: hf.Activations) -> FeatureSpec:
        """Request tangents scaled to the artifact's shift."""
        return FeatureSpec(directions=self.cav.directions_ * self.cav.scale_[:, None])

    def loss_terms(self, head: FunctionalHead, batch: HeadBatch) -> tuple[Tensor, Tensor | None]:
        """Return the logits and their squared change over the step."""
        logits = head(*batch.values)
        moved = head(*(value + tangent[0] for value, tangent in zip(batch.values, batch.tangents)))
        return logits, (moved - logits).square().sum(1)


# --8<-- [end:correction]


# --8<-- [start:artifact]
@dataclass(frozen=True, kw_only=True)
class Frame(hf.Artifact, name="frame"):
    """A dark frame, as from some scanners.

    Args:
        width: in pixels, at least 1.
    """

    localized: ClassVar[bool] = True
    width: int = 2

    def stamp(self, image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Darken the border by a random factor."""
        mask = np.ones(image.shape[:2], dtype=bool)
        mask[self.width : -self.width, self.width : -self.width] = False
        framed = image.copy()
        framed[mask] = (image[mask] * rng.uniform(0.5, 0.8)).astype(np.uint8)
        return framed, mask


# --8<-- [end:artifact]


# --8<-- [start:metric]
class Attracted(Metric, name="attracted"):
    """Share of images that the artifact moves into the biased class."""

    ideal = 0.0
    label = "Attracted"
    description = "Share of images of other classes that are predicted as the biased class with the artifact."

    def compute(self, evidence: Evidence) -> Score:
        """Count such predictions on biased images of the other classes."""
        others = evidence.labels_of("biased") != evidence.biased_class
        return self.proportion(evidence.logits_biased[others].argmax(1) == evidence.biased_class)


# --8<-- [end:metric]


# --8<-- [start:callback]
class Seconds(Callback):
    """Print what takes long."""

    def on_stage(self, stage: Stage) -> None:
        """Take a finished stage; `stage.scores` are its rows."""
        if stage.seconds > 60:
            print(f"{stage.name}: {stage.seconds:.0f} s")


# --8<-- [end:callback]


# --8<-- [start:dataset]
class FramedLesions(BenchmarkDataset, name="framed-lesions"):
    """Drawn lesions of two classes; half of the training images of the first have a frame."""

    title = "Framed lesions"
    artifacts = ("frame",)
    default_size = 32
    needs_root = False
    recipe = Recipe(epochs={"demo": 10})

    def data(self, model: str) -> BiasedData:
        """Return the datasets, the same for all models."""
        counts, starts = (800, 200, 200), (0, 800, 1000)
        parts = [
            hf.SyntheticLesions(n, size=self.size, classes=2, seed=self.seed, start=start)
            for n, start in zip(counts, starts)
        ]
        return insert_bias(parts, Frame(), biased_class=0, share=0.5, seed=self.seed)


# --8<-- [end:dataset]


# --8<-- [start:together]
def main() -> None:
    """Train on the biased images, then correct and evaluate."""
    data = BenchmarkDataset.named("framed-lesions")(seed=0).data("demo")
    model = hf.build_model("demo", classes=2)
    pretrain(model, hf.data.InMemory(data.train), Pretraining(epochs=10))
    layer = hf.recommend_layer(model, torch.zeros(2, 3, 32, 32)).layer

    acts = hf.collect_activations(model, layer, data.train)
    in_class = acts.labels == data.biased_class
    cav = MedianCAV().fit(acts.pooled[in_class], acts.has_artifact[in_class])
    fixed = Steady(cav, strength=10).correct(model, acts)

    clean = hf.collect_activations(model, layer, data.test_clean)
    biased = hf.collect_activations(model, layer, data.test_biased)
    for name, each in (("original", model), ("steady", fixed)):
        scores = hf.evaluate(each, clean=clean, biased=biased, biased_class=data.biased_class, cav=cav)
        shown = {score.metric: score.value for score in scores}
        print(f"{name:9} attracted {shown['attracted']:.2f}, accuracy_clean {shown['accuracy_clean']:.2f}")


# --8<-- [end:together]

if __name__ == "__main__":
    main()
