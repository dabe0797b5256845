"""Logit pairing and augmentation: fine-tuning on counterfactual pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hansfree.corrections import Augmented, LatentCorrection, LogitPairing
from hansfree.corrections.training import FineTuning
from hansfree.errors import DataError
from hansfree.models.surgery import split
from hansfree.reasons import Reason, ReasonCode
from tests.corrections.examples import CASES, TinyImages, collect

CASE = CASES["convolution"]
TUNING = FineTuning(learning_rate=0.05, epochs=1, batch_size=100)
PAIRS = TinyImages(30, artifact="pairs")
CLEAN = ~TinyImages(30).has_artifact


def step_by_hand(loss: Callable[[nn.Module], Tensor]) -> dict[str, Tensor]:
    """Return some weights of the whole model in float64 after one step."""
    whole = CASE.model().double()
    loss(whole).backward()  # type: ignore[no-untyped-call]
    parameters = {name: whole.get_parameter(name) for name in ("conv.weight", "fc.weight", "fc.bias")}
    return {name: each - TUNING.learning_rate * each.grad for name, each in parameters.items()}


def loss_of_pairs(whole: nn.Module) -> Tensor:
    """Return the loss on both images of each pair; those that carry the artifact already have no counterfactual."""
    both = [TinyImages(30, artifact=kind).images[CLEAN].double() for kind in ("none", "all")]
    return functional.cross_entropy(whole(torch.cat(both)), torch.from_numpy(np.tile(TinyImages(30).labels[CLEAN], 2)))


def loss_and_penalty(whole: nn.Module) -> Tensor:
    logits = whole(PAIRS.images.double())  # thirty as they are, then the same thirty with the artifact
    apart = (logits[:30][CLEAN] - logits[30:][CLEAN]).square().sum()
    return functional.cross_entropy(logits, torch.from_numpy(PAIRS.labels)) + 0.3 * 2 * apart / len(PAIRS)


@pytest.mark.parametrize(
    ("method", "loss", "unpaired"),
    [
        (Augmented(tuning=TUNING), loss_of_pairs, 0),
        (LogitPairing(strength=0.3, tuning=TUNING), loss_and_penalty, 2 * (~CLEAN).sum()),
    ],
)
def test_one_step_is_a_step_by_hand(
    method: LatentCorrection, loss: Callable[[nn.Module], Tensor], unpaired: int
) -> None:
    model = CASE.model()
    activations = collect(CASE, model, PAIRS)
    fixed = method.correct(model, activations)
    for name, expected in step_by_hand(loss).items():
        torch.testing.assert_close(fixed.get_parameter(name).double(), expected, rtol=1e-4, atol=1e-6)
    (detail,) = method.details(activations, clean=activations, biased=None)
    assert detail == Reason(ReasonCode.PAIRS_USED, {"pairs": CLEAN.sum(), "unpaired": unpaired})


@pytest.mark.parametrize("method", [Augmented(), LogitPairing()])
@pytest.mark.parametrize(
    ("changed", "words"), [({}, "every image twice"), ({"has_artifact": None}, "which images carry")]
)
def test_images_without_a_counterfactual_are_refused(
    method: LatentCorrection, changed: dict[str, None], words: str
) -> None:
    model = CASE.model()
    with pytest.raises(DataError, match=words):
        method.correct(model, replace(collect(CASE, model, TinyImages(9)), **changed))


def test_a_larger_strength_brings_the_pairs_closer() -> None:
    model = CASE.model()
    activations = collect(CASE, model, PAIRS)
    cut = split(model, activations.layer, train="last")
    heads = LogitPairing(tuning=FineTuning(optimizer="converged")).train(cut, activations, [0.0, 1e3, 1e5])
    apart = []
    for head in heads:
        with torch.no_grad():
            logits = cut.model_with(head.state, model).eval()(PAIRS.images)
        apart.append(float((logits[:30] - logits[30:])[CLEAN].square().mean()))
    assert apart[0] > 2 * apart[1] > 4 * apart[2]
