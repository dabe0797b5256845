"""Adapt any classifier: logits of any output, preprocessing of any library."""

from __future__ import annotations

import copy
import importlib
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from hansfree._internal.progress import Progress, silent
from hansfree.data import Example
from hansfree.errors import HansfreeError, OptionError, check_choice
from hansfree.models.loading import find_source, sentence_of
from hansfree.models.surgery.graph import default_dtype_kept, device_of, eval_copy
from hansfree.models.surgery.tracing import PROJECTION, remove_inserted

_UNCROPPED = 384  # pixels from which on transformers squashes where a file has `crop_pct` (ConvNeXt's)


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """How images become a model's input: size in pixels; mean and spread of each channel, whose values are 0 to 1."""

    size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    resize: Literal["squash", "crop"]  # the nearer of the two: `crop` always cuts off an eighth


def preprocessing_of(source: str, model: nn.Module) -> Preprocessing | None:
    """Return what the source's library says about the input of the model; None where it is unknown."""
    config = getattr(model, "pretrained_cfg", None)  # timm's, also where a user's own function has made the model
    if isinstance(config, Mapping):
        channels, _, size = config["input_size"]
        mean, std = tuple(config["mean"]), tuple(config["std"])
        resize: Literal["squash", "crop"] = "squash" if config.get("crop_mode") == "squash" else "crop"
        return Preprocessing(size=size, channels=channels, mean=mean, std=std, resize=resize)
    library, name = find_source(source)
    if library == "torchvision":
        said = importlib.import_module("torchvision").models.get_model_weights(name).DEFAULT.transforms()
        mean, std = tuple(said.mean), tuple(said.std)
        return Preprocessing(size=said.crop_size[0], channels=3, mean=mean, std=std, resize="crop")
    return _of_hugging_face(name, model) if library == "hf" else None


def _of_hugging_face(name: str, model: nn.Module) -> Preprocessing | None:
    path = _file_of_hub(name) if not Path(name).is_dir() else Path(name) / "preprocessor_config.json"
    if path is None or not path.is_file():
        return None
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        is_crop = bool(config.get("do_center_crop")) or "shortest_edge" in _sides(config.get("size"))
        sides = _sides(config["crop_size"] if config.get("do_center_crop") else config["size"])
        size = int(sides["shortest_edge"] if "shortest_edge" in sides else sides["height"])
        if not config.get("do_center_crop") and config.get("crop_pct") is not None and size >= _UNCROPPED:
            is_crop = False
        channels = int(getattr(getattr(model, "config", None), "num_channels", 3))
        is_normal = bool(config.get("do_normalize", True))
        mean = tuple(map(float, config["image_mean"])) if is_normal else (0.0,) * channels
        std = tuple(map(float, config["image_std"])) if is_normal else (1.0,) * channels
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


log = logging.getLogger(__name__)
Output = Literal["classes", "binary", "label"]
Place = Literal["itself", "attribute", "key", "first"]
_TAKE: dict[Place, Callable[[Any], Any]] = {
    "itself": lambda result: result,
    "attribute": lambda result: result.logits,
    "key": lambda result: result["logits"],
    "first": lambda result: result[0],
}


@dataclass(eq=False)
class AdaptedForward:
    """The ``forward`` of a model instance: logits of at least two columns, taken out of what the model returns.

    An object and not a closure: a copy of the model then holds one that runs the copy.
    """

    model: nn.Module
    place: Place
    output: Output
    label: int | None

    def __post_init__(self) -> None:
        # The class is kept, as tracing gives the instance another one; a forward that the user set is called as before.
        self.kind, self.own = type(self.model), self.model.__dict__.get("forward")

    def __call__(self, images: Tensor) -> Tensor:
        """Return the logits."""
        result = self.kind.forward(self.model, images) if self.own is None else self.own(images)
        logits: Tensor = _TAKE[self.place](result)
        if self.output == "classes":
            return logits
        # One logit z of yes against no is the pair [0, z]: its softmax is the sigmoid, its cross-entropy the binary.
        if self.output == "label":
            logits = logits[:, self.label : self.label + 1]  # type: ignore[operator]  # a number, `adapt` saw to it
        return functional.pad(logits.reshape(-1, 1), (1, 0))


def adapt(model: nn.Module, example: Tensor, *, output: Output = "classes", label: int | None = None) -> nn.Module:
    """Return the model with logits of at least two classes; one that has them already is returned itself.

    Logits inside an output object (Hugging Face), a dict or a tuple are taken out of it. The result shares all weights
    and layers with ``model``, which itself stays as it is.

    Args:
        example: A batch of images: what a model returns is seen when it runs.
        output: ``"classes"``, one logit per class; ``"binary"``, one logit of yes against no; ``"label"``, one logit
            per label of a multi-label model, of which one is looked at.
        label: Which one, counted from 0.
    """
    check_choice("output", output, Output)
    if (output == "label") != (label is not None):
        raise OptionError(
            f"output is {output!r} and label is {label}: output 'label' and the label's number go together."
        )
    if isinstance(model.__dict__.get("forward"), AdaptedForward):
        raise OptionError(f"This {type(model).__name__} is adapted already. Adapt plain(model) instead.")
    place, logits = _run(model, example)
    _check_logits(type(model).__name__, logits, output, label)
    if place == "itself" and output == "classes":
        return model
    adapted = _shallow_copy(model)
    adapted.__dict__["forward"] = AdaptedForward(adapted, place, output, label)
    return adapted


class CopyableGraph(fx.GraphModule):
    """A graph whose copies keep a ``forward`` of the instance, and with it an inserted projection: torch's do not."""

    def __deepcopy__(self, memo: dict[int, Any]) -> CopyableGraph:
        copied = cast(CopyableGraph, super().__deepcopy__(memo))
        if "forward" in self.__dict__:
            copied.__dict__["forward"] = copy.deepcopy(self.__dict__["forward"], memo)
        return copied


def as_module(model: nn.Module | ExportedProgram) -> nn.Module:
    """Return the module to correct: that which was compiled, the graph of an exported program, or the model itself.

    Examples:
        >>> model = nn.Linear(4, 2)
        >>> as_module(torch.compile(model)) is model
        True
    """
    if isinstance(model, ExportedProgram):
        exported = model.module()
        graph = exported.graph
        for node in graph.nodes:
            node.meta.clear()  # tensors without memory, which cannot be copied
            if node.op == "call_module":  # checks of the input, which fix its size
                graph.erase_node(node)
        output = next(iter(reversed(graph.nodes)))
        if isinstance(output.args[0], tuple | list) and len(output.args[0]) == 1:
            output.args = (output.args[0][0],)
        graph.set_codegen(fx.graph.CodeGen())
        return CopyableGraph(exported, graph)
    if isinstance(model, fx.GraphModule) and not isinstance(model, CopyableGraph):
        return CopyableGraph(model, model.graph)
    return cast(nn.Module, getattr(model, "_orig_mod", model))


def in_form_of(corrected: nn.Module, given: nn.Module | ExportedProgram) -> nn.Module:
    """Return a corrected module in the form of the given model: compiled, where that was."""
    is_compiled = not isinstance(given, ExportedProgram) and hasattr(given, "_orig_mod")
    return cast(nn.Module, torch.compile(corrected)) if is_compiled else corrected


def find_logits(model: nn.Module, example: Tensor) -> Tensor:
    """Return what the model says about the images, taken out of the object, dict or tuple around it."""
    return _run(model, example)[1]


def returns_logits(model: nn.Module, example: Tensor) -> bool:
    """Return whether the model returns a tensor itself, with nothing around it."""
    return _run(model, example)[0] == "itself"


def plain(model: nn.Module) -> nn.Module:
    """Return the user's own module: without the adapter, and without a projection that a correction inserted."""
    if hasattr(model, PROJECTION):
        model, _ = remove_inserted(model)
    forward = model.__dict__.get("forward")
    if not isinstance(forward, AdaptedForward):
        return model
    own = _shallow_copy(model)
    del own.__dict__["forward"]
    if forward.own is not None:
        own.__dict__["forward"] = forward.own
    return own


def plain_state(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights under the keys of the user's own module; a projection's are left out."""
    return {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(f"{PROJECTION}.")}


def _shallow_copy(model: nn.Module) -> nn.Module:
    """Return a module of its own that holds the same layers and tensors."""
    copied = copy.copy(model)
    for name, value in vars(copied).items():
        if isinstance(value, dict):  # of layers, parameters, hooks: adding one to the copy must not add it to the model
            copied.__dict__[name] = value.copy()
    return copied


def _run(model: nn.Module, example: Tensor) -> tuple[Place, Tensor]:
    kind, shape = type(model).__name__, " x ".join(map(str, example.shape[1:]))
    own = eval_copy(model, share=True)
    try:
        with default_dtype_kept(model), torch.no_grad():
            result = own(example.clone().to(device_of(model, example)))
    except HansfreeError:
        raise
    except Exception as error:  # the model is user code
        raise OptionError(
            f"{kind} cannot take images of {shape} numbers (channels x height x width): {sentence_of(error)}"
        ) from error
    for place, take in _TAKE.items():
        with suppress(AttributeError, KeyError, IndexError, TypeError):
            if isinstance(logits := take(result), Tensor):
                return place, logits
    raise OptionError(
        f"{kind} returns a {type(result).__name__} in which no logits are found. Allowed: a tensor, an object or "
        "dict with 'logits', a tuple or list that starts with them."
    )


def _check_logits(kind: str, logits: Tensor, output: Output, label: int | None) -> None:
    shape = tuple(logits.shape)
    if len(shape) not in (1, 2):
        raise OptionError(
            f"{kind} returns the shape {shape}; it must be (images, classes): one row of logits per image."
        )
    columns = 1 if len(shape) == 1 else shape[1]
    if output == "binary" and columns != 1:
        raise OptionError(f"{kind} returns {columns} numbers per image, a binary model one. Use output 'classes'.")
    if output == "classes" and columns == 1:
        raise OptionError(
            f"{kind} returns one number per image. If that is the logit of yes against no, use output 'binary'."
        )
    if output == "label" and len(shape) == 1:
        raise OptionError(f"{kind} returns one number per image, which has no labels to choose from. Use 'binary'.")
    if output == "label" and not 0 <= int(label or 0) < columns:
        raise OptionError(f"label is {label}; {kind} has the labels 0 to {columns - 1}.")
    if not logits.isfinite().all():
        raise OptionError(f"{kind} returns numbers that are not finite for the example images.")
    if output == "classes" and bool((logits >= 0).all()) and bool(((logits.float().sum(-1) - 1).abs() < 1e-4).all()):
        log.warning("%s seems to return probabilities, not logits: leave out its final softmax.", kind)


def predict_logits(
    model: nn.Module,
    images: Dataset[Example] | Tensor,
    *,
    batch_size: int = 64,
    workers: int = 0,
    progress: Progress = silent,
) -> np.ndarray:
    """Return the logits of a model in eval mode for all images, in order; the model itself is not changed."""
    own = eval_copy(model, share=True)
    if isinstance(images, Tensor):
        loader: Any = torch.split(images, batch_size)
    else:
        loader = DataLoader(images, batch_size=batch_size, num_workers=workers)
    logits = []
    for batch in progress(loader, total=len(loader), label="model predictions"):
        inputs = batch if isinstance(batch, Tensor) else batch.image
        with torch.inference_mode():  # not around the loading: a dataset may keep the tensors that it makes
            logits.append(own(inputs.clone().to(device_of(own, inputs))).cpu())
    return torch.cat(logits).numpy()
