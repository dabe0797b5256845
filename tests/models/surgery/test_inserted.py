"""A module behind an operation of a model whose logits lie in an object, as in Hugging Face's."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from hansfree.models import load_model
from hansfree.models.surgery import insert_after, take_out
from tests.models.zoo import hugging_face_folder, pictures

LAYER = "resnet.encoder.stages.1.layers.0.add"


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> nn.Module:
    return load_model(f"hf:{hugging_face_folder(tmp_path_factory.mktemp('hf'))}")


@torch.no_grad()
def test_the_output_keeps_its_class_and_the_images_their_name(model: nn.Module) -> None:
    images = pictures()
    before = model(images)
    same = insert_after(model, LAYER, nn.Identity())
    for result in (same(images), same(pixel_values=images), copy.deepcopy(same)(images)):
        assert type(result) is type(before)
        torch.testing.assert_close(result.logits, before.logits)
    edited = insert_after(model, LAYER, Doubled())
    assert not torch.allclose(edited(images).logits, before.logits)
    assert torch.equal(take_out(edited)[0](images).logits, before.logits)
    assert torch.equal(model(images).logits, before.logits)


def test_what_the_graph_does_not_know_is_refused(model: nn.Module) -> None:
    edited = insert_after(model, LAYER, nn.Identity())
    with pytest.raises(TypeError, match="A corrected ResNetForImageClassification takes images only, not labels"):
        edited(pictures(), labels=torch.zeros(4, dtype=torch.long))
