"""The relearning test: how soon does the artifact come back when a corrected head sees the poisoned images again?"""

from __future__ import annotations

import copy
from dataclasses import dataclass

from torch import nn

from hansfree.activations import Activations, Features, compute_features, cut_again
from hansfree.corrections import Vanilla
from hansfree.datasets.pairs import check_bits, check_same_images
from hansfree.errors import DataError, OptionError
from hansfree.metrics import Evidence, Score
from hansfree.metrics.insertion import FlipRate, ProbabilityChange
from hansfree.seeds import seeded
from hansfree.splitting import take_out
from hansfree.training import FineTuning, Heads, train_heads


@dataclass(frozen=True)
class RelearningCurve:
    """The artifact's effect on held-out images at the start, and after every epoch on the poisoned images."""

    steps: tuple[int, ...]  # batches seen until then; the first is 0
    flip_rate: tuple[Score, ...]
    probability_change: tuple[Score, ...]  # of the class that the artifact leaks into

    def steps_until(self, change: float) -> float | None:
        """Return after how many steps the probability change reaches ``change``; None where it does not.

        It is taken as a straight line between two epochs.
        """
        values = [score.value for score in self.probability_change]
        for i, value in enumerate(values):
            if value >= change:
                if i == 0:
                    return 0.0
                share = (change - values[i - 1]) / (value - values[i - 1])
                return float(self.steps[i - 1] + share * (self.steps[i] - self.steps[i - 1]))
        return None


@dataclass(frozen=True)
class Relearning:
    """Relearning curves of a model as it came, of its corrected version and, where asked, of a fresh head."""

    original: RelearningCurve
    corrected: RelearningCurve
    fresh: RelearningCurve | None = None  # of a head that never learned anything (`reset_head`)

    @property
    def half(self) -> float:
        """Half of the artifact's effect on the model as it came: the mark that the others are timed by."""
        effect = self.original.probability_change[0].value
        if not effect > 0:
            raise DataError(
                f"The artifact changes the probability of its class by {effect:.3f} in the model as it came: there is "
                "no effect that could come back."
            )
        return effect / 2

    def describe(self) -> str:
        """Say when half of the effect is back, against a head that has to learn it for the first time."""
        curve = self.corrected
        start, end = curve.probability_change[0].value, curve.probability_change[-1].value
        back = "was never gone" if start >= self.half else f"is back {_when(curve, self.half)}"
        fresh = "" if self.fresh is None else f"; a fresh head reaches it {_when(self.fresh, self.half)}"
        return (
            f"The artifact changes the probability of its class by {2 * self.half:.2f} in the model as it came, by "
            f"{start:.2f} in the corrected one, and by {end:.2f} after {curve.steps[-1]} steps on the poisoned images. "
            f"Half of the effect {back}{fresh}."
        )


def relearn(
    model: nn.Module,
    poisoned: Activations,
    *,
    clean: Activations,
    biased: Activations,
    biased_class: int,
    tuning: FineTuning | None = None,
) -> RelearningCurve:
    """Fine-tune a copy of the head on the poisoned images, without any penalty, and watch the artifact come back.

    The layers up to the activations' stay as they are, and so does what a correction put behind the layer (P-ClArC).

    Args:
        poisoned: the training images, where the artifact is tied to a class.
        clean: held-out images without the artifact.
        biased: the same images with it.
        biased_class: the class that the artifact leaks into.
        tuning: of all heads that are compared; the seed says in which order the images come.
    """
    tuning = tuning or FineTuning()
    if tuning.optimizer == "converged":
        raise OptionError("Relearning is counted in steps, which optimizer='converged' has none of: use sgd or adam.")
    check_bits(clean, biased)
    check_same_images(clean, biased)
    plain, edit = take_out(model)
    cut = cut_again(plain, poisoned)
    Vanilla(tuning=tuning).check(cut, poisoned)
    without, within = (compute_features(cut, images, edit=edit) for images in (clean, biased))

    def watch(heads: Heads) -> list[tuple[Score, Score]]:
        return [_effect(heads, without, within, biased_class)]

    start = watch(Heads(cut, 1, tuning.device))
    features = compute_features(cut, poisoned, edit=edit)
    (trained,) = train_heads(cut, features, Vanilla(), [0.0], tuning, watch=watch, label="relearning")
    points = [*start, *trained.history]
    per_epoch = -(-len(features) // tuning.batch_size)
    return RelearningCurve(
        steps=tuple(per_epoch * epoch for epoch in range(len(points))),
        flip_rate=tuple(flips for flips, _ in points),
        probability_change=tuple(change for _, change in points),
    )


def reset_head(model: nn.Module, activations: Activations, *, seed: int = 0) -> nn.Module:
    """Return a copy of the model in which all that follows the layer starts anew, as if it had never learned.

    It is the yardstick of a relearning test: what was really forgotten takes as long as the first time. Batch norms
    stay as they are, for no correction trains them.
    """
    plain, _ = take_out(model)
    cut = cut_again(plain, activations)
    owners = sorted({name.rpartition(".")[0] for name in cut.trainable})
    fresh = copy.deepcopy(plain)
    modules = {owner: fresh.get_submodule(owner) for owner in owners}
    if stubborn := [owner or "the model" for owner, module in modules.items() if not _resets(module)]:
        raise DataError(
            f"{', '.join(stubborn)} of {type(model).__name__} cannot start anew: no reset_parameters is there to say "
            "how."
        )
    with seeded(seed):
        for module in modules.values():
            module.reset_parameters()  # type: ignore[operator]
    return fresh


def _effect(heads: Heads, clean: Features, biased: Features, biased_class: int) -> tuple[Score, Score]:
    evidence = Evidence(
        labels=clean.labels,
        biased_class=biased_class,
        logits_clean=heads.logits(clean)[0].numpy(),
        logits_biased=heads.logits(biased)[0].numpy(),
    )
    return FlipRate().compute(evidence), ProbabilityChange().compute(evidence)


def _when(curve: RelearningCurve, change: float) -> str:
    steps = curve.steps_until(change)
    return f"not within {curve.steps[-1]} steps" if steps is None else f"after {steps:.0f} steps"


def _resets(module: nn.Module) -> bool:
    return callable(getattr(module, "reset_parameters", None))
