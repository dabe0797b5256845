"""Every kind of model through the whole chain: cut, cached, corrected, and given back as the user's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from hansfree.activations import collect_activations
from hansfree.cavs import SignalCAV
from hansfree.corrections import Correction
from hansfree.corrections.training import FineTuning
from hansfree.models import adapt, load_model, plain, plain_state, recommend_layer
from hansfree.models.surgery import list_layers
from tests.models.zoo import ZOO, hugging_face_folder, make, pictures

HUGGING_FACE = "resnet (hugging face)"


@pytest.mark.parametrize("name", [*ZOO, HUGGING_FACE])
def test_the_chain(name: str, tmp_path: Path) -> None:
    if name == HUGGING_FACE:
        model, images, output = load_model(f"hf:{hugging_face_folder(tmp_path)}"), pictures(), "classes"
    else:
        model, images, output, _ = make(name)
    adapted = adapt(model, images, output=output, label=1 if output == "label" else None)
    before = adapted(images)
    layer = recommend_layer(adapted, images).layer
    assert layer in [one.name for one in list_layers(adapted, images) if one.usable]

    has_artifact = torch.tensor([True, False, True, False])
    data = TensorDataset(images, torch.tensor([0, 0, 1, 1]), has_artifact)
    acts = collect_activations(adapted, layer, data)
    assert acts.pooled.shape[0] == 4
    cav = SignalCAV().fit(acts.pooled, acts.has_artifact)
    tuning = FineTuning(epochs=1, learning_rate=0.01, batch_size=4)
    for method in ("vanilla", "rr-clarc", "p-clarc", "a-clarc"):
        correction = Correction.named(method).for_run(cav=cav, images=data, tuning=tuning)
        corrected = correction.correct(adapted, acts)
        own = plain(corrected)
        assert type(own) is type(model)
        assert list(plain_state(corrected)) == list(model.state_dict())
        assert corrected(images).shape == before.shape
        assert not torch.equal(corrected(images), before)
        assert _is_raw(own, images, model)
        model_again = _fresh(name, tmp_path)
        model_again.load_state_dict(plain_state(corrected), strict=True)
        if method != "p-clarc":  # which keeps a projection besides the weights
            again = adapt(model_again, images, output=output, label=1 if output == "label" else None)
            np.testing.assert_allclose(again(images).detach(), corrected(images).detach(), atol=1e-5)
    assert torch.equal(adapted(images), before), "the given model is not touched"


def _fresh(name: str, folder: Path) -> nn.Module:
    return load_model(f"hf:{folder}") if name == HUGGING_FACE else make(name)[0]


def _is_raw(own: nn.Module, images: torch.Tensor, model: nn.Module) -> bool:
    """Tell whether a module returns what the user's own does: the same kind, of the same shape."""
    result, expected = own(images), model(images)
    if isinstance(expected, torch.Tensor):
        return bool(result.shape == expected.shape)
    return type(result) is type(expected)
