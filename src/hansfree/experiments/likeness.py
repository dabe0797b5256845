"""Whether an artifact that is put into images is the one that marked images carry, as far as the layer can tell."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from hansfree.cavs import SignalCAV
from hansfree.cavs.diagnostics import expected_cosine
from hansfree.experiments.experiment import Experiment

_ALIKE = 0.5  # part of the attainable cosine: below, most of one change goes another way than the other
_TELLING = 0.3  # attainable cosine: below, the marked images show too little of a direction to compare with


@dataclass(frozen=True)
class Likeness:
    """How the change that insertion makes in a layer compares with what the marked training images show."""

    cosine: float  # of the mean change with the direction of the marked images
    attainable: float  # that the very artifact of the marked images would have: few of them give a noisy direction
    size: float  # how far the change goes along that direction; the marked images' own distance is 1
    n_inserted: int
    n_marked: int

    @property
    def is_unlike(self) -> bool:
        """Whether what is proven by insertion says little about the artifact that the images came with."""
        return self.attainable >= _TELLING and self.cosine < _ALIKE * self.attainable

    @property
    def sentence(self) -> str:
        """What to tell a user."""
        if self.attainable < _TELLING:
            return (
                f"Whether the artifact that is put in is the one of the marked images cannot be told: the "
                f"{self.n_marked} of them in the biased class show too little of a direction."
            )
        told = (
            f"Put into {self.n_inserted} validation images, the artifact changes the layer with a cosine of "
            f"{self.cosine:.2f} to the direction of the {self.n_marked} marked training images (their own would have "
            f"about {self.attainable:.2f}), and goes {self.size:.2g} times as far along it."
        )
        if not self.is_unlike:
            return told
        return (
            f"{told} To this model the two are not alike: what is proven by insertion says little about the artifact "
            "that the images came with. Look at what is put in, at its size and place, and at the marks."
        )


def compare_insertion(experiment: Experiment) -> Likeness:
    """Compare what is put into validation images with what training images carry by nature, once in a run."""

    def work() -> dict[str, float | int]:
        material = experiment.material
        train, inside = material.activations["train"], material.cav_images
        bits = np.asarray(train.has_artifact)[inside]
        marked = material.cav_named(SignalCAV.name)
        clean, biased = (material.activations[name].pooled for name in ("val_clean", "val_biased"))
        change = (biased - clean).mean(axis=0, dtype=np.float64)
        along, length, size = float(change @ marked.direction_), float(np.linalg.norm(change)), float(marked.scale_[0])
        seed = experiment.setting.tuning.seed
        found = Likeness(
            cosine=along / length if length else 0.0,
            attainable=expected_cosine(train.pooled[inside], bits, cav=SignalCAV.name, seed=seed),
            size=along / size if size else 0.0,
            n_inserted=len(clean),
            n_marked=int(bits.sum()),
        )
        return asdict(found)

    return Likeness(**experiment.run.stage("likeness", work))
