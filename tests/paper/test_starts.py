"""What base models are trained from: backbones, other numbers of classes, ImageNet's weights, a package's own."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from urllib.error import URLError

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from hansfree.errors import OptionError
from hansfree.models import ARCHITECTURES, PRETRAINED, build_model
from hansfree_paper.starts import check_start, load_start, rename_lite, start_model
from tests.models.test_weights import same
from tests.models.zoo import network

TRAINED = build_model("demo", classes=5, seed=9).state_dict()


def without(state: dict[str, Tensor], start: str) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in state.items() if not name.startswith(start)}


@pytest.mark.parametrize("gone", ["", "classifier"], ids=["another number of classes", "none"])
def test_last_layer_is_fresh_and_seeded(tmp_path: Path, gone: str, caplog: pytest.LogCaptureFixture) -> None:
    half = {name: tensor.half() for name, tensor in TRAINED.items()}
    save_file(without(half, gone) if gone else half, tmp_path / "w.safetensors")
    with caplog.at_level(logging.INFO, "hansfree"):
        a, c = (start_model("demo", classes=3, seed=seed, weights=tmp_path / "w.safetensors") for seed in (4, 5))
    assert same(a, half, but=("classifier",))
    assert {parameter.dtype for parameter in a.parameters()} == {torch.float32}
    assert not torch.equal(a.classifier.weight, c.classifier.weight)
    assert torch.equal(a.classifier.weight, build_model("demo", classes=3, seed=4).classifier.weight)
    assert "fresh: classifier.weight, classifier.bias" in caplog.text


def test_a_word_that_is_neither_file_nor_pretrained() -> None:
    with pytest.raises(OptionError, match="Did you mean 'pretrained'"):
        start_model("resnet18", classes=2, weights="pretraned")
    with pytest.raises(OptionError, match="'demo' has no ImageNet weights: use --weights random, or give a file"):
        start_model("demo", classes=2, weights="pretrained")
    check_start("resnet18", PRETRAINED)  # nothing is downloaded


def test_imagenet_weights_are_downloaded_once_with_their_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, file = "efficientnet_b0", "efficientnet_b0_rwightman-7f5810bc.pth"
    published, asked = build_model(name, classes=10, seed=3).state_dict(), []

    def offline(*_: object, **__: object) -> None:
        raise URLError("no route to host")

    def download(url: str, path: str, hash_prefix: str, progress: bool) -> None:
        asked.append((url, hash_prefix))
        torch.save(published, path)

    monkeypatch.setattr(torch.hub, "download_url_to_file", offline)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(OptionError, match=rf"no route to host.*Put https://download.*{file} at .*checkpoints/{file}"):
        start_model(name, classes=2, weights="pretrained")
    monkeypatch.setattr(torch.hub, "download_url_to_file", download)
    for classes in (2, 10):
        model = start_model(name, classes=classes, weights="pretrained")
        assert same(model, published, but=(ARCHITECTURES[name].last,) if classes == 2 else ())
    assert asked == [(f"https://download.pytorch.org/models/{file}", file[-12:-4])]


@pytest.mark.parametrize(
    ("gone", "fresh"),
    [
        ("classifier.", ["classifier.0", "classifier.3", "classifier.6"]),
        ("classifier.6.", ["classifier.6"]),
        ("classifier.3.", None),
        ("features.28.", None),
    ],
)
def test_vgg_may_lack_its_head_or_its_last_layer_only(gone: str, fresh: list[str] | None) -> None:
    model = copy.deepcopy(network("vgg"))
    weights = without(network("vgg").state_dict(), gone)
    if fresh is None:
        with pytest.raises(OptionError, match=rf"it lacks {gone}weight"):
            load_start(model, weights, last="classifier.6", source="file")
    else:
        names = load_start(model, weights, last="classifier.6", source="file")
        assert names == [f"{layer}.{part}" for layer in fresh for part in ("weight", "bias")]


def test_weights_are_renamed_by_their_order() -> None:
    def renamed(names: str) -> list[str]:
        return list(rename_lite({name: torch.zeros(1) for name in names.split()}, nn.Linear(2, 3)))

    assert renamed("_conv_stem.weight _fc.bias") == ["weight", "bias"]
    assert renamed("conv_stem.weight bn1.weight") == ["conv_stem.weight", "bn1.weight"]  # timm's own names stay
    with pytest.raises(OptionError, match=r"not its order.*\.pth"):
        renamed("_conv_stem.weight _fc.bias _fc.weight")
    with pytest.raises(OptionError, match="have 3 tensors, EfficientNet-Lite0 has 2"):
        renamed("_conv_stem.weight _fc.weight _fc.bias")
