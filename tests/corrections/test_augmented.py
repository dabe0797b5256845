"""Augmentation: Vanilla on images without the artifact and the same ones with it, and on no others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from hansfree.corrections import Augmented
from hansfree.corrections.training import FineTuning
from hansfree.errors import DataError
from tests.corrections.examples import CASES, TinyImages, collect

CASE = CASES["convolution"]
TUNING = FineTuning(learning_rate=0.05, epochs=1, batch_size=100)


def test_one_step_is_a_step_on_the_pairs_by_hand() -> None:
    model, data = CASE.model(), TinyImages(30, artifact="pairs")
    activations = collect(CASE, model, data)
    fixed = Augmented(tuning=TUNING).correct(model, activations)
    kept = ~TinyImages(30).has_artifact  # those that carry it already have no twin without it
    assert 0 < kept.sum() < 30
    whole = CASE.model().double()
    both = [TinyImages(30, artifact=kind).images[kept].double() for kind in ("none", "all")]
    labels = torch.from_numpy(np.tile(TinyImages(30).labels[kept], 2))
    functional.cross_entropy(whole(torch.cat(both)), labels).backward()
    for name in ("conv.weight", "fc.weight", "fc.bias"):
        parameter = whole.get_parameter(name)
        step = parameter - TUNING.learning_rate * parameter.grad
        torch.testing.assert_close(fixed.get_parameter(name).double(), step, rtol=1e-4, atol=1e-6)
    told = Augmented().remark(activations, clean=activations, biased=None)
    assert told == f"It was trained on {kept.sum()} images, each without and with the artifact."


def test_images_without_a_twin_are_refused() -> None:
    model = CASE.model()
    activations = collect(CASE, model, TinyImages(9))
    for foreign, sentence in (
        (activations, "every image twice"),
        (replace(activations, has_artifact=None), "which images carry"),
    ):
        with pytest.raises(DataError, match=sentence):
            Augmented().correct(model, foreign)
