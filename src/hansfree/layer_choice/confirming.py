"""Try a layer: correct the model there by RR-ClArC at a few strengths, and see what validation images say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hansfree.cavs import SignalCAV, save_cavs
from hansfree.corrections import RRClArC
from hansfree.experiments import Setting
from hansfree.experiments.material import Material
from hansfree.metrics import Score
from hansfree.progress import Progress


@dataclass(frozen=True)
class Trial:
    """What correcting at a layer did to the validation images; the strength is None where none was admissible."""

    strength: float | None
    reason: str  # of the selection rule
    clean: Score | None  # balanced accuracy of the chosen head
    biased: Score | None  # None where too few images with the artifact leave it unknown
    before: Score | None  # of the model as it came, with the artifact

    @property
    def sentence(self) -> str:
        """What came of it."""
        if self.strength is None:
            return f"corrected there, {self.reason}"
        told = f"corrected there at strength {self.strength:g}"
        if self.biased is None or self.before is None:
            return f"{told}, the clean accuracy is kept; with the artifact it cannot be known"
        return (
            f"{told}, balanced accuracy with the artifact goes from {100 * self.before.value:.1f} to "
            f"{100 * self.biased.value:.1f} % (± {100 * self.biased.stderr:.1f})"
        )


def try_layer(setting: Setting, strengths: Sequence[float], folder: Path, *, progress: Progress) -> Trial:
    """Correct at the setting's layer and choose a strength by its rule; test images are not looked at.

    Args:
        folder: An empty one, for the cache.
    """
    data = setting.data
    # The stages want test images; the validation images again are the same cache, and no test image is read.
    blind = replace(setting, data=replace(data, test_clean=data.val_clean, test_biased=data.val_biased))
    material = Material(blind, folder, folder / "activations", progress=progress)
    train, rows = material.activations["train"], material.cav_images
    cav = SignalCAV().fit(train.pooled[rows], data.train.has_artifact[rows])
    save_cavs(folder / "cavs.safetensors", {SignalCAV.name: cav})
    method = RRClArC(cav, tuning=setting.tuning)
    heads = method.train(material.cut, train, strengths, watch=material.validator(), progress=progress)
    finals = [(head.strength, head.history[-1]) for head in heads]
    original = material.original_validation
    choice = blind.rule.choose([final for _, final in finals], original)
    if choice.index is None:
        return Trial(None, choice.reason, None, None, original.biased)
    strength, final = finals[choice.index]
    return Trial(strength, choice.reason, final.clean, final.biased, original.biased)
