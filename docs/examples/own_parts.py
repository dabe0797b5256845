"""A CAV, a correction, an artifact, a metric and a dataset of one's own, and all five at work together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

import hansfree as hf
from hansfree.corrections import CAVCorrection
from hansfree.corrections.training import HeadBatch, Pretraining, WeightedHead, pretrain
from hansfree.studies import BiasedData, Study
from hansfree.studies.biased import insert_bias
from hansfree.studies.study import Recipe


# [start:cav]
class MedianCAV(hf.CAV, name="median"):
    """The difference of two medians: a few wrong bits do not turn it."""

    def _direction(self, X: np.ndarray, has_artifact: np.ndarray) -> np.ndarray:
        return np.median(X[has_artifact], axis=0) - np.median(X[~has_artifact], axis=0)


# [end:cav]


# [start:correction]
class Steady(CAVCorrection, name="steady"):
    """Penalise what one whole step along the artifact does to the logits, where RR-ClArC takes the derivative."""

    title = "Steady"
    has_strength = True
    grid = (0.01, 0.1, 1.0, 10.0)

    def directions(self, activations: hf.Activations) -> np.ndarray:
        """Ask for tangents as long as the artifact's own shift."""
        return self.cav.directions_ * self.cav.scale_[:, None]

    def forward(self, head: WeightedHead, batch: HeadBatch) -> tuple[Tensor, Tensor | None]:
        """Compare the logits with those one step further."""
        logits = head(*batch.values)
        moved = head(*(value + tangent[0] for value, tangent in zip(batch.values, batch.tangents)))
        return logits, (moved - logits).square().sum(1)


# [end:correction]


# [start:artifact]
@dataclass(frozen=True, kw_only=True)
class Frame(hf.Artifact, name="frame"):
    """A dark frame, as some scanners leave it.

    Args:
        width: in pixels, at least 1.
    """

    localized: ClassVar[bool] = True
    width: int = 2

    def stamp(self, image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Darken the border; how much differs from image to image."""
        mask = np.ones(image.shape[:2], dtype=bool)
        mask[self.width : -self.width, self.width : -self.width] = False
        framed = image.copy()
        framed[mask] = (image[mask] * rng.uniform(0.5, 0.8)).astype(np.uint8)
        return framed, mask


# [end:artifact]


# [start:metric]
class Attracted(hf.Metric, name="attracted"):
    """Share of images that the artifact pulls into the biased class."""

    ideal = 0.0
    label = "Attracted"
    description = "Share of images of other classes that are answered as the biased class once the artifact is in."

    def compute(self, evidence: hf.Evidence) -> hf.Score:
        """Look at the answers on biased images of the other classes."""
        others = evidence.labels_of("biased") != evidence.biased_class
        return self.proportion(evidence.logits_biased[others].argmax(1) == evidence.biased_class)


# [end:metric]


# [start:dataset]
class FramedLesions(Study, name="framed-lesions"):
    """Drawn lesions of two classes; half of the training images of the first have a frame."""

    title = "Framed lesions"
    artifacts = ("frame",)
    default_size = 32
    needs_root = False
    recipe = Recipe(epochs={"demo": 10})

    def data(self, model: str) -> BiasedData:
        """Return the sets; they are the same for all models."""
        counts, starts = (800, 200, 200), (0, 800, 1000)
        parts = [
            hf.SyntheticLesions(n, size=self.size, classes=2, seed=self.seed, start=start)
            for n, start in zip(counts, starts)
        ]
        return insert_bias(parts, Frame(), biased_class=0, share=0.5, seed=self.seed)


# [end:dataset]


# [start:together]
def main() -> None:
    """Train on the biased images, then find, unlearn and score."""
    data = Study.named("framed-lesions")(seed=0).data("demo")
    model = hf.build_model("demo", classes=2)
    pretrain(model, hf.InMemory(data.train), Pretraining(epochs=10))
    layer = hf.recommend_layer(model, torch.zeros(2, 3, 32, 32)).layer

    acts = hf.collect_activations(model, layer, data.train)
    inside = acts.labels == data.biased_class
    cav = MedianCAV().fit(acts.pooled[inside], acts.has_artifact[inside])
    fixed = Steady(cav, strength=10).correct(model, acts)

    clean = hf.collect_activations(model, layer, data.test_clean)
    biased = hf.collect_activations(model, layer, data.test_biased)
    for name, each in (("original", model), ("steady", fixed)):
        scores = hf.evaluate(each, clean=clean, biased=biased, biased_class=data.biased_class, cav=cav)
        shown = {score.metric: score.value for score in scores}
        print(f"{name:9} attracted {shown['attracted']:.2f}, accuracy_clean {shown['accuracy_clean']:.2f}")


# [end:together]

if __name__ == "__main__":
    main()
