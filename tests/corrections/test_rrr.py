"""RRR's penalty, value and gradient, against the literal double backward through the whole model to the pixels."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from hansfree.corrections import RRR
from hansfree.corrections.rrr import RRRNorm
from hansfree.data.examples import Example
from hansfree.errors import DataError, OptionError
from hansfree.models.surgery import split
from tests.corrections.examples import (
    CASES,
    TinyImages,
    batch_of,
    collect,
    gradients,
    in_double,
    value_and_gradients,
)
from tests.corrections.reference import rrr_loss

EXACT = {"rtol": 1e-9, "atol": 1e-11}
CASE = CASES["convolution"]


class OnlyExamples(Dataset[Example]):
    """Images that do not say beforehand which of them carry the artifact."""

    def __init__(self, source: TinyImages) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Example:
        return self.source[index]


def double_images(count: int = 8) -> TinyImages:
    data = TinyImages(count)
    data.images = data.images.double()
    assert 0 < data.has_artifact.sum() < count
    return data


@pytest.mark.parametrize("norm", get_args(RRRNorm))
@pytest.mark.parametrize("target", ["sum", 0])
@pytest.mark.parametrize(("name", "knows"), [*((name, True) for name in CASES), ("convolution", False)])
def test_value_and_gradient(name: str, knows: bool, target: Any, norm: RRRNorm) -> None:
    case, data = CASES[name], double_images()
    activations = collect(case, case.model(), TinyImages(8))
    cut, whole = in_double(case.model(), case), case.model().double()
    method = RRR(data if knows else OnlyExamples(data), target=target, norm=norm)
    logits, penalty, slopes = value_and_gradients(cut, method, batch_of(cut, method, activations, data))

    label = None if target == "sum" else target
    expected = rrr_loss(whole, data.images, data.masks, target=label, norm=norm)
    assert (expected[torch.from_numpy(data.has_artifact)] > 0).all()
    torch.testing.assert_close(logits, whole(data.images).detach(), **EXACT)
    torch.testing.assert_close(penalty.mean(), expected.mean().detach(), **EXACT)
    parameters = {name: whole.get_parameter(name) for name in cut.trainable}
    torch.testing.assert_close(slopes, gradients(expected.mean(), parameters), **EXACT)


def test_a_batch_without_artifact_has_no_penalty() -> None:
    data = TinyImages(4, artifact="none")
    data.images = data.images.double()
    activations = collect(CASE, CASE.model(), TinyImages(4))
    cut = in_double(CASE.model(), CASE)
    logits, penalty = RRR(data).loss_terms(cut.head, batch_of(cut, RRR(data), activations, data))
    assert penalty is None
    torch.testing.assert_close(logits, CASE.model().double()(data.images))


def _without_masks() -> Any:
    data = TinyImages()
    return [(data.images[i], data.labels[i]) for i in range(len(data))]


def _reordered() -> Any:
    data = TinyImages()
    data.ids[[4, 5]] = data.ids[[5, 4]]
    return data


@pytest.mark.parametrize(
    ("images", "sentence"),
    [
        (lambda: TinyImages(11), "one image for each of the 12"),
        (_without_masks, "masks"),
        (_reordered, "order"),
        (lambda: TinyImages(artifact="none"), "nothing would be penalised"),
    ],
)
def test_images_that_cannot_serve_are_refused(images: Any, sentence: str) -> None:
    model = CASE.model()
    with pytest.raises(DataError, match=sentence):
        RRR(images()).correct(model, collect(CASE, model, TinyImages()))


@pytest.mark.parametrize("target", [3, -1, np.int64(5)])
def test_a_class_that_the_model_does_not_have_is_refused(target: Any) -> None:
    model = CASE.model()
    with pytest.raises(OptionError, match="classes 0 to 2"):
        RRR(TinyImages(), target=target).correct(model, collect(CASE, model, TinyImages()))


def test_dropout_is_the_same_on_the_way_down_and_up() -> None:
    data = double_images()
    case = CASES["convolution"]
    activations = collect(case, case.model(), TinyImages(8))
    whole = case.model().double()
    whole.fc = nn.Sequential(nn.Dropout(0.5), whole.fc)
    cut = split(whole, case.layer, example=data.images[:1])
    method = RRR(data)
    batch = batch_of(cut, method, activations, data)
    cut.train_mode()
    whole.fc[0].train()
    torch.manual_seed(1)
    _, penalty, slopes = value_and_gradients(cut, method, batch)
    torch.manual_seed(1)
    expected = rrr_loss(whole, data.images, data.masks, target=None)
    torch.testing.assert_close(penalty.mean(), expected.mean().detach(), **EXACT)
    parameters = {name: whole.get_parameter(name) for name in cut.trainable}
    torch.testing.assert_close(slopes, gradients(expected.mean(), parameters), **EXACT)
