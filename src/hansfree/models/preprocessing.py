"""What a library says about the images that its model was trained on."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import nn

from hansfree.errors import OptionError
from hansfree.models.sources import find_source

_UNCROPPED = 384  # pixels from which on transformers squashes where a file has `crop_pct` (ConvNeXt's)


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """How pictures become a model's input: size in pixels; mean and spread of each channel, whose values are 0 to 1."""

    size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    resize: Literal["squash", "crop"]  # the nearer of the two: `crop` always cuts off an eighth


def preprocessing_of(source: str, model: nn.Module) -> Preprocessing | None:
    """Return what the source's library says about the input of the model; None where nobody says anything."""
    told = getattr(model, "pretrained_cfg", None)  # timm's, also where a user's own function has made the model
    if isinstance(told, Mapping):
        return _of_timm(told)
    found = find_source(source)
    if found.library == "torchvision":
        return _of_torchvision(found.name)
    return _of_hugging_face(found.name, model) if found.library == "hf" else None


def _of_timm(told: Mapping[str, Any]) -> Preprocessing:
    channels, _, size = told["input_size"]
    resize: Literal["squash", "crop"] = "squash" if told.get("crop_mode") == "squash" else "crop"
    return Preprocessing(size=size, channels=channels, mean=tuple(told["mean"]), std=tuple(told["std"]), resize=resize)


def _of_torchvision(name: str) -> Preprocessing:
    told = importlib.import_module("torchvision").models.get_model_weights(name).DEFAULT.transforms()
    return Preprocessing(size=told.crop_size[0], channels=3, mean=tuple(told.mean), std=tuple(told.std), resize="crop")


def _of_hugging_face(name: str, model: nn.Module) -> Preprocessing | None:
    path = _file_of_hub(name) if not Path(name).is_dir() else Path(name) / "preprocessor_config.json"
    if path is None or not path.is_file():
        return None
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        is_crop = bool(told.get("do_center_crop")) or "shortest_edge" in _sides(told.get("size"))
        sides = _sides(told["crop_size"] if told.get("do_center_crop") else told["size"])
        size = int(sides["shortest_edge"] if "shortest_edge" in sides else sides["height"])
        if not told.get("do_center_crop") and told.get("crop_pct") is not None and size >= _UNCROPPED:
            is_crop = False
        channels = int(getattr(getattr(model, "config", None), "num_channels", 3))
        is_normal = bool(told.get("do_normalize", True))
        mean = tuple(map(float, told["image_mean"])) if is_normal else (0.0,) * channels
        std = tuple(map(float, told["image_std"])) if is_normal else (1.0,) * channels
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise OptionError(
            f"{str(path)!r} does not say how images are prepared ({type(error).__name__}: {error})."
        ) from error
    return Preprocessing(size=size, channels=channels, mean=mean, std=std, resize="crop" if is_crop else "squash")


def _sides(size: Any) -> dict[str, Any]:
    """Return a size as newer files write it: older ones hold a number."""
    return size if isinstance(size, dict) else {"height": size, "width": size}


def _file_of_hub(name: str) -> Path | None:
    """Return the file that was downloaded with the model, or can be now."""
    hub = importlib.import_module("huggingface_hub")  # comes with transformers, which has loaded the model
    try:
        return Path(hub.hf_hub_download(name, "preprocessor_config.json"))
    except (OSError, ValueError, hub.errors.HfHubHTTPError, hub.errors.LocalEntryNotFoundError):
        return None  # some models have none; what it says can be given by hand
