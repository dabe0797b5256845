"""The embedded suite's other world: a timestamp must be unlearned where other classes rightly read characters."""

from __future__ import annotations

import numpy as np

from hansfree.artifacts import Artifact
from hansfree.datasets.printed import PrintedSkin
from hansfree.studies.biased import insert_bias
from hansfree.studies.study import BiasedData, Recipe, Study


class PrintedSkinStudy(Study, name="synthetic-text"):
    """The timestamp leaks into a class of lesions, while four other classes need printed characters.

    It stands for the paper's Q3, where "digital clock" or "web site" suffer when a timestamp is unlearned for all
    classes instead of for the one that it leaked into.
    """

    title = "Synthetic skin with printed text"
    artifacts = ("timestamp",)
    default_size = 64
    needs_root = False
    recipe = Recipe(
        epochs={"demo": 10, "vgg16": 8, "resnet18": 10, "efficientnet_b0": 16},
        fresh_rates={"demo": 2e-3, "vgg16": 1e-4, "resnet18": 1e-3, "efficientnet_b0": 2e-3},
    )

    share, biased_class = 0.5, 0
    n_train, n_val, n_test = 2430, 603, 1206  # multiples of the nine classes

    def data(self, model: str) -> BiasedData:
        """Return the sets; the model makes no difference."""
        counts = np.array((self.n_train, self.n_val, self.n_test))
        starts = np.cumsum(counts) - counts
        parts = [PrintedSkin(int(n), size=self.size, seed=self.seed, start=int(at)) for n, at in zip(counts, starts)]
        artifact = Artifact.named(self.artifact)()
        return insert_bias(parts, artifact, biased_class=self.biased_class, share=self.share, seed=self.seed)
