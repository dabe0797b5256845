"""Whatever a model returns, the engine sees logits of two classes or more, and the user gets the own module back."""

from __future__ import annotations

import copy
import json
import logging
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from hansfree.errors import OptionError
from hansfree.models import (
    Preprocessing,
    adapt,
    find_logits,
    load_model,
    plain,
    plain_state,
    predict_logits,
    preprocessing_of,
)
from hansfree.models.surgery import insert_after, remove_inserted, split
from tests.models.zoo import Shifted, SmallNet, hugging_face_folder, pictures, together

Holder = namedtuple("Holder", ["loss", "logits"])


WRAPS = {
    "object": lambda logits: Holder(None, logits),
    "dict": lambda logits: {"features": logits.sum(), "logits": logits},
    "tuple": lambda logits: (logits, "aux"),
    "list": lambda logits: [logits],
}


@pytest.mark.parametrize("kind", WRAPS)
def test_logits_are_taken_out(kind: str) -> None:
    model, images = SmallNet(wrap=WRAPS[kind]).eval(), pictures()
    expected = model.fc(model.act(model.norm(model.conv(images))).mean((2, 3)))
    adapted = adapt(model, images)
    assert torch.equal(adapted(images), expected)
    assert torch.equal(find_logits(model, images), expected)
    assert type(adapted) is SmallNet
    assert not isinstance(model(images), Tensor), "the given model stays as it is"
    cut = split(adapted, "norm", example=images)
    assert cut.traced
    assert torch.allclose(together(cut, images), expected, atol=1e-6)


@pytest.mark.parametrize("is_flat", [False, True])
def test_one_logit_becomes_a_pair_with_the_same_probability_and_loss(is_flat: bool) -> None:
    model = SmallNet(1, wrap=lambda logit: logit.flatten() if is_flat else logit).eval().double()
    images, labels = pictures().double(), torch.tensor([0, 1, 1, 0])
    logit = model(images).reshape(-1)
    pair = adapt(model, images, output="binary")(images)
    assert pair.shape == (4, 2)
    assert torch.allclose(pair.softmax(1)[:, 1], logit.sigmoid())
    expected = functional.binary_cross_entropy_with_logits(logit, labels.double())
    assert torch.allclose(functional.cross_entropy(pair, labels), expected)


def test_a_copy_runs_its_own_weights_and_so_do_given_ones() -> None:
    model, images = SmallNet(1).eval(), pictures()
    adapted = adapt(model, images, output="binary")
    assert list(adapted.state_dict()) == list(model.state_dict()) == list(plain_state(adapted))
    assert adapted.fc.weight is model.fc.weight, "nothing is copied"
    with pytest.raises(OptionError, match=r"plain\(model\)"):
        adapt(adapted, images)
    twin = copy.deepcopy(adapted)
    with torch.no_grad():
        twin.fc.bias += 1
    assert torch.allclose(twin(images)[:, 1], model(images)[:, 0] + 1)
    assert torch.allclose(adapted(images)[:, 1], model(images)[:, 0])
    given = functional_call(adapted, {"fc.bias": model.fc.bias + 2}, (images,))
    assert torch.allclose(given[:, 1], model(images)[:, 0] + 2)


@pytest.mark.parametrize("layer", ["norm", "mean"], ids=["a module", "an operation"])
def test_plain_gives_the_users_module_back_from_a_corrected_one(layer: str) -> None:
    model, images = SmallNet(1).eval(), pictures()
    adapted = adapt(model, images, output="binary")
    shifted = insert_after(adapted, layer, Shifted())
    assert not torch.equal(shifted(images), adapted(images))
    own = plain(shifted)
    assert type(own) is SmallNet
    assert torch.equal(own(images), model(images)), "one logit again, and no projection"
    assert list(plain_state(shifted)) == list(model.state_dict())
    assert shifted(images).shape == (4, 2), "the corrected one keeps adapter and projection"
    without, _ = remove_inserted(shifted)
    assert torch.equal(without(images), adapted(images)), "without the projection it is still adapted"


def test_a_forward_that_the_user_set_goes_on() -> None:
    model, images = SmallNet(1).eval(), pictures()
    model.forward = lambda x: 3 * SmallNet.forward(model, x)  # type: ignore[method-assign]
    adapted = adapt(model, images, output="binary")
    assert torch.allclose(adapted(images)[:, 1:], 3 * SmallNet.forward(model, images))
    assert plain(adapted).forward is model.forward


@pytest.mark.parametrize(
    ("model", "options", "sentence"),
    [
        (SmallNet(1), {}, "one number per image.*output 'binary'"),
        (SmallNet(3), {"output": "binary"}, "3 numbers per image.*output 'classes'"),
        (SmallNet(3), {"output": "label", "label": 3}, "label is 3; SmallNet has the labels 0 to 2"),
        (SmallNet(wrap=lambda logits: logits[:, 0]), {"output": "label", "label": 0}, "no labels to choose from"),
        (SmallNet(3), {"output": "label"}, "go together"),
        (SmallNet(3), {"output": "clases"}, "Did you mean 'classes'"),
        (SmallNet(3, channels=1), {}, r"cannot take images of 3 x 32 x 32 .*RuntimeError: .*channels"),
        (SmallNet(wrap=lambda logits: {"scores": logits}), {}, "returns a dict in which no logits are found"),
        (SmallNet(wrap=lambda logits: logits[..., None]), {}, r"returns the shape \(4, 3, 1\)"),
        (SmallNet(wrap=lambda logits: logits / 0), {}, "not finite"),
    ],
)
def test_what_does_not_fit_is_one_sentence(model: nn.Module, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence) as error:
        adapt(model.eval(), pictures(), **options)
    assert "\n" not in str(error.value)


def test_logits_of_all_images_are_in_order_and_of_eval_mode() -> None:
    model, images = SmallNet().train(), pictures()
    found = predict_logits(model, images, batch_size=3)
    assert model.training
    torch.testing.assert_close(torch.from_numpy(found), model.eval()(images).detach())


def test_probabilities_in_place_of_logits_are_noticed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "hansfree"):
        model = SmallNet().eval()
        assert adapt(model, pictures()) is plain(model) is model
        assert not caplog.text
        adapt(SmallNet(wrap=lambda logits: logits.softmax(1)).eval(), pictures())
    assert "leave out its final softmax" in caplog.text


def test_the_given_model_keeps_its_mode_and_hooks() -> None:
    model = SmallNet(1).train()
    before = model.norm.running_mean.clone()
    adapted = adapt(model, pictures(), output="binary")
    assert model.training
    assert torch.equal(model.norm.running_mean, before)
    adapted.register_forward_hook(lambda *_: None)
    adapted.add_module("more", nn.ReLU())
    assert not model._forward_hooks
    assert not hasattr(model, "more")


IMAGENET: dict[str, Any] = {"channels": 3, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def test_torchvision_and_timm() -> None:
    assert preprocessing_of("demo", SmallNet()) is preprocessing_of("my.module:function", SmallNet()) is None
    expected = Preprocessing(size=299, resize="crop", **IMAGENET)
    assert preprocessing_of("torchvision:inception_v3", SmallNet()) == expected
    model, expected = load_model("timm:resnet10t", classes=2), Preprocessing(size=176, resize="crop", **IMAGENET)
    for source in ("timm:resnet10t", "my.module:function"):  # made by another function, it is still of timm
        assert preprocessing_of(source, model) == expected
    model.pretrained_cfg["crop_mode"] = "squash"
    assert preprocessing_of("timm:resnet10t", model) == replace(expected, resize="squash")


def raw(size: int, resize: Literal["crop", "squash"]) -> Preprocessing:
    return Preprocessing(size=size, channels=3, mean=(0, 0, 0), std=(1, 1, 1), resize=resize)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {"size": {"height": 96, "width": 96}, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.1, 0.2, 0.3]},
            Preprocessing(size=96, channels=3, mean=(0.5, 0.4, 0.3), std=(0.1, 0.2, 0.3), resize="squash"),
        ),
        ({"size": {"shortest_edge": 64}, "crop_pct": 0.875}, raw(64, "crop")),
        ({"size": 256, "crop_size": {"height": 224, "width": 224}, "do_center_crop": True}, raw(224, "crop")),
        ({"size": {"shortest_edge": 384}, "crop_pct": 0.875}, raw(384, "squash")),
        ({"size": {"shortest_edge": 384}}, raw(384, "crop")),
    ],
    ids=["squash", "crop", "old", "large", "large crop"],
)
def test_hugging_face(tmp_path: Path, config: dict[str, Any], expected: Preprocessing) -> None:
    model = load_model(f"hf:{hugging_face_folder(tmp_path)}")
    assert preprocessing_of(f"hf:{tmp_path}", model) is None
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"do_normalize": "image_mean" in config, **config}))
    assert preprocessing_of(f"hf:{tmp_path}", model) == expected


@pytest.mark.parametrize("text", ["{", "[]", '{"size": {"depth": 3}, "do_normalize": false}'])
def test_a_file_that_does_not_say_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "preprocessor_config.json").write_text(text)
    with pytest.raises(OptionError, match="does not say how images are prepared"):
        preprocessing_of(f"hf:{tmp_path}", SmallNet())
