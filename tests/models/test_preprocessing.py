"""What the libraries say about the input is read, and where they say nothing, nothing is made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hansfree.errors import OptionError
from hansfree.models import Preprocessing, load_model, preprocessing_of
from tests.models.zoo import SmallNet, hugging_face_folder

IMAGENET: dict[str, Any] = {"channels": 3, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def test_torchvision() -> None:
    expected = Preprocessing(size=224, resize="crop", **IMAGENET)
    assert preprocessing_of("resnet18", SmallNet()) == expected
    assert preprocessing_of("torchvision:resnet18", SmallNet()) == expected
    assert preprocessing_of("torchvision:inception_v3", SmallNet()) == Preprocessing(
        size=299, resize="crop", **IMAGENET
    )


def test_timm() -> None:
    model = load_model("timm:resnet10t", classes=2)
    expected = Preprocessing(size=176, resize="crop", **IMAGENET)
    assert preprocessing_of("timm:resnet10t", model) == expected
    assert preprocessing_of("my.module:function", model) == expected, "whoever made it, it is timm's"
    model.pretrained_cfg["crop_mode"] = "squash"
    found = preprocessing_of("timm:resnet10t", model)
    assert found is not None
    assert found.resize == "squash"


def test_nobody_says_anything() -> None:
    assert preprocessing_of("demo", SmallNet()) is None
    assert preprocessing_of("my.module:function", SmallNet()) is None


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (
            {"size": {"height": 96, "width": 96}, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.1, 0.2, 0.3]},
            Preprocessing(size=96, channels=3, mean=(0.5, 0.4, 0.3), std=(0.1, 0.2, 0.3), resize="squash"),
        ),
        (
            {"size": {"shortest_edge": 64}, "crop_pct": 0.875, "do_normalize": False},
            Preprocessing(size=64, channels=3, mean=(0, 0, 0), std=(1, 1, 1), resize="crop"),
        ),
        (
            {"size": 256, "crop_size": {"height": 224, "width": 224}, "do_center_crop": True, "do_normalize": False},
            Preprocessing(size=224, channels=3, mean=(0, 0, 0), std=(1, 1, 1), resize="crop"),
        ),
        (
            {"size": {"shortest_edge": 384}, "crop_pct": 0.875, "do_normalize": False},
            Preprocessing(size=384, channels=3, mean=(0, 0, 0), std=(1, 1, 1), resize="squash"),
        ),
        (
            {"size": {"shortest_edge": 384}, "do_normalize": False},
            Preprocessing(size=384, channels=3, mean=(0, 0, 0), std=(1, 1, 1), resize="crop"),
        ),
    ],
    ids=["squash", "crop", "old", "large", "large crop"],
)
def test_hugging_face(tmp_path: Path, told: dict[str, Any], expected: Preprocessing) -> None:
    model = load_model(f"hf:{hugging_face_folder(tmp_path)}")
    assert preprocessing_of(f"hf:{tmp_path}", model) is None
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(told))
    assert preprocessing_of(f"hf:{tmp_path}", model) == expected


@pytest.mark.parametrize(
    "text", ["{", "{}", "[]", '{"size": 96, "image_mean": 3}', '{"size": {"depth": 3}, "do_normalize": false}']
)
def test_a_file_that_does_not_say_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "preprocessor_config.json").write_text(text)
    with pytest.raises(OptionError, match="does not say how images are prepared"):
        preprocessing_of(f"hf:{tmp_path}", SmallNet())
