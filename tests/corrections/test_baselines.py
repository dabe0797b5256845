"""Logit pairing and augmentation: fine-tuning on counterfactual pairs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from hansfree.corrections import Augmented, LogitPairing
from hansfree.corrections.training import FineTuning
from hansfree.errors import DataError
from hansfree.models.surgery import split
from tests.corrections.examples import CASES, TinyImages, collect

CASE = CASES["convolution"]
TUNING = FineTuning(learning_rate=0.05, epochs=1, batch_size=100)


def test_one_step_is_a_step_on_the_pairs_by_hand() -> None:
    model, data = CASE.model(), TinyImages(30, artifact="pairs")
    activations = collect(CASE, model, data)
    fixed = Augmented(tuning=TUNING).correct(model, activations)
    clean = ~TinyImages(30).has_artifact  # those that carry it already have no counterfactual
    assert 0 < clean.sum() < 30
    whole = CASE.model().double()
    both = [TinyImages(30, artifact=kind).images[clean].double() for kind in ("none", "all")]
    labels = torch.from_numpy(np.tile(TinyImages(30).labels[clean], 2))
    functional.cross_entropy(whole(torch.cat(both)), labels).backward()
    for name in ("conv.weight", "fc.weight", "fc.bias"):
        parameter = whole.get_parameter(name)
        step = parameter - TUNING.learning_rate * parameter.grad
        torch.testing.assert_close(fixed.get_parameter(name).double(), step, rtol=1e-4, atol=1e-6)
    message = Augmented().remark(activations, clean=activations, biased=None)
    assert message == f"It was trained on {clean.sum()} images, each without and with the artifact."


def test_images_without_a_counterfactual_are_refused() -> None:
    model = CASE.model()
    activations = collect(CASE, model, TinyImages(9))
    for foreign, sentence in (
        (activations, "every image twice"),
        (replace(activations, has_artifact=None), "which images carry"),
    ):
        with pytest.raises(DataError, match=sentence):
            Augmented().correct(model, foreign)


SOLVED = FineTuning(optimizer="converged")


def test_one_step_is_a_step_on_loss_and_penalty_by_hand() -> None:
    model, data = CASE.model(), TinyImages(30, artifact="pairs")
    fixed = LogitPairing(strength=0.3, tuning=TUNING).correct(model, collect(CASE, model, data))
    without = ~TinyImages(30).has_artifact
    assert 0 < without.sum() < 30
    whole = CASE.model().double()
    logits = whole(data.images.double())  # thirty as they are, then the same thirty with the artifact
    loss = functional.cross_entropy(logits, torch.from_numpy(data.labels))
    apart = (logits[:30][without] - logits[30:][without]).square().sum()  # the others have no counterfactual
    (loss + 0.3 * 2 * apart / len(data)).backward()
    for name in ("conv.weight", "fc.weight", "fc.bias"):
        parameter = whole.get_parameter(name)
        step = parameter - TUNING.learning_rate * parameter.grad
        torch.testing.assert_close(fixed.get_parameter(name).double(), step, rtol=1e-4, atol=1e-6)


def test_a_larger_strength_brings_the_pairs_closer() -> None:
    model, data = CASE.model(), TinyImages(30, artifact="pairs")
    activations = collect(CASE, model, data)
    cut = split(model, activations.layer, train="last")
    heads = LogitPairing(tuning=SOLVED).train(cut, activations, [0.0, 1e3, 1e5])
    without = ~TinyImages(30).has_artifact
    apart = []
    for head in heads:
        with torch.no_grad():
            logits = cut.model_with(head.state, model).eval()(data.images)
        apart.append(float((logits[:30] - logits[30:])[without].square().mean()))
    assert apart[0] > 2 * apart[1] > 4 * apart[2]


def test_the_remark_counts_the_pairs_and_no_pair_is_refused() -> None:
    model, carried = CASE.model(), TinyImages(9).has_artifact.sum()
    activations = collect(CASE, model, TinyImages(9, artifact="pairs"))
    message = LogitPairing().remark(activations, clean=activations, biased=None)
    twice = 2 * carried  # as they came, and once more among those with the artifact put in
    assert message == (
        f"It was trained on {9 - carried} images, each without and with the artifact, "
        f"and on {twice} without a counterfactual."
    )
    with pytest.raises(DataError, match="which images carry"):
        LogitPairing().correct(model, replace(activations, has_artifact=None))
