"""Plain fine-tuning, and fine-tuning on counterfactual pairs."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from hansfree.activations import Activations, FeatureSpec, find_pairs
from hansfree.corrections.base import MethodInfo, Need
from hansfree.corrections.latent import LatentCorrection
from hansfree.corrections.training import FunctionalHead, HeadBatch, SolverSupport
from hansfree.models.surgery import Cut
from hansfree.reasons import Reason, ReasonCode

_GRID = tuple(float(f"{digit}e{power}") for power in range(-5, 2) for digit in (1, 2, 5))


class Vanilla(LatentCorrection, name="vanilla"):
    """Fine-tune the head on the data as they are, the baseline with the same budget."""

    rank = 0
    info = MethodInfo(title="Vanilla", in_default_run=True)


class PairCorrection(LatentCorrection):
    """A correction on activations of images without and with the artifact: ``has_artifact`` differs, ``ids`` agree."""

    info = MethodInfo(needs=frozenset({Need.PAIRS}))
    uses_unpaired: ClassVar[bool] = False  # images in no pair are trained on too

    def check(self, cut: Cut, activations: Activations) -> None:
        """Raise for images that are not there in both forms, or under two labels."""
        super().check(cut, activations)
        find_pairs(activations)

    def details(self, train: Activations, *, clean: Activations, biased: Activations | None) -> tuple[Reason, ...]:
        """Return the number of pairs, and of images in none."""
        pairs = len(find_pairs(train))
        unpaired = len(train) - 2 * pairs if self.uses_unpaired else 0
        return (Reason(ReasonCode.PAIRS_USED, {"pairs": pairs, "unpaired": unpaired}),)


class LogitPairing(PairCorrection, name="logit-pairing"):
    """Fine-tune on all images, with a penalty on the squared distance between the logits of each pair.

    Counterfactual logit pairing (Garg et al., 2019). Images with the artifact that are in no pair can stay, as the
    penalty prevents that it predicts their class.
    """

    rank = 10
    info = MethodInfo(title="Logit pairing", strengths=_GRID, needs=frozenset({Need.PAIRS}), paper_strengths=_GRID)
    solver = SolverSupport.QUADRATIC
    uses_unpaired = True

    def features(self, activations: Activations) -> FeatureSpec:
        """Return the head's inputs, and as tangent the change to the other image of the pair; zero without one."""
        return FeatureSpec(pairs="change")

    def loss_terms(self, head: FunctionalHead, batch: HeadBatch) -> tuple[Tensor, Tensor | None]:
        """Return the logits, and their squared distance to those of the counterfactual."""
        logits, moved = head.finite_step(batch.values, batch.tangents)
        return logits, (moved - logits).square().sum((0, 2))


class Augmented(PairCorrection, name="augmented"):
    """Fine-tune on every image twice, without the artifact and with it inserted, under the same label.

    Images with the artifact that are in no pair are left out: they would tie it to a class again.
    """

    rank = 11
    info = MethodInfo(title="Augmented", needs=frozenset({Need.PAIRS}))

    def features(self, activations: Activations) -> FeatureSpec:
        """Return the head's inputs of the pairs alone."""
        return FeatureSpec(pairs="only")
