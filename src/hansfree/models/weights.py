"""Weights in files: others' are read and fitted into a model of ours, and corrected ones written.

A file that does not fit is an error, never a model that is partly random without a word.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from hansfree._internal.files import ordered_metadata, written_atomically
from hansfree.errors import OptionError, nearest

PRETRAINED = "pretrained"
"""The word for a library's own pretrained weights, given in place of a file."""

# Under which training scripts store the weights beside their own state.
_WRAPPERS = ("state_dict", "model_state_dict", "model")
_PREFIXES = ("module.", "_orig_mod.", "model.")  # of a parallel, a compiled, a Lightning model
COUNTER = "num_batches_tracked"  # batch norm's count of batches: unused by our models, and missing in old files


def check_weights(weights: str | Path, *, words: Sequence[str] = (PRETRAINED,)) -> None:
    """Refuse what is neither one of the words that stand for weights nor a file; nothing is read."""
    if str(weights) not in words and not Path(weights).is_file():
        raise OptionError(
            f"There is no file of weights {str(weights)!r}.{nearest(str(weights), words)} "
            f"Allowed: {', '.join(map(repr, words))}, or the path of a .safetensors, .pt or .pth file."
        )


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a ``.safetensors``, ``.pt`` or ``.pth`` file; nothing in it is ever executed.

    They may be wrapped as ``{"state_dict": ...}`` or ``{"model": ...}``, and carry the ``module.`` of a parallel model.
    """
    check_weights(path)
    if path.suffix == ".safetensors":
        try:
            return _without_module(load_file(path))
        except SafetensorError as error:
            raise OptionError(f"{str(path)!r} is not a readable safetensors file ({error}).") from error
    if path.suffix not in (".pt", ".pth"):
        raise OptionError(f"Weights end in .safetensors, .pt or .pth, not {path.suffix!r}: {str(path)!r}.")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise OptionError(
            f"{str(path)!r} is not a file of plain tensors: what a pickle holds beyond them can run code, so it is not "
            "opened. Save `model.state_dict()`, best as .safetensors, where you trust the file."
        ) from error
    except Exception as error:  # damaged bytes can end the unpickler in any kind of error
        reason = str(error).split(". ")[0]  # torch then advises `weights_only=False`
        raise OptionError(f"{str(path)!r} cannot be read as a file of weights ({reason}).") from error
    return _without_module(_unwrapped(content, path))


def write_weights(path: Path, state: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a ``.safetensors`` file, whole or not at all; the same weights and metadata give the same bytes."""
    # Copies, because safetensors refuses tensors that share memory, and tied weights have a key each.
    copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.items()}
    content = save(copies) if metadata is None else ordered_metadata(save(copies, dict(metadata)))
    with written_atomically(path) as temporary:
        temporary.write_bytes(content)


def fill_with_weights(model: nn.Module, weights: Mapping[str, Tensor], *, source: str) -> None:
    """Copy weights into a model that they must fill completely; half precision becomes the model's own."""
    own, given = model.state_dict(), _aligned(weights, model)
    if unexpected := [name for name in given if name not in own]:
        near = nearest(unexpected[0], own)
        raise OptionError(f"{source} does not fit: {type(model).__name__} has no {_some(unexpected)}.{near}")
    if missing := [name for name in own if name not in given and not name.endswith(COUNTER)]:
        raise OptionError(f"{source} does not fit: it lacks {_some(missing)}.{nearest(missing[0], given)}")
    wrong = [name for name, tensor in own.items() if name in given and tensor.shape != given[name].shape]
    if wrong:
        shapes = f"{wrong[0]} has the shape {tuple(given[wrong[0]].shape)} instead of {tuple(own[wrong[0]].shape)}"
        raise OptionError(f"{source} does not fit: {shapes}{f', and {len(wrong) - 1} more' if wrong[1:] else ''}.")
    for name, tensor in given.items():
        is_plain = tensor.layout == torch.strided and not tensor.is_meta
        if not is_plain or (own[name].is_floating_point() and not tensor.is_floating_point()):
            what = tensor.dtype if is_plain else "on the meta device" if tensor.is_meta else tensor.layout
            raise OptionError(f"{source} does not fit: {name} is {what}. Save dense floating-point weights.")
    model.load_state_dict({**own, **given})


def count_classes_of(weights: Mapping[str, Tensor], model: nn.Module) -> int | None:
    """Return for how many classes the weights were trained, where nothing but that keeps them from fitting."""
    own, given = model.state_dict(), _aligned(weights, model)
    wrong = [name for name, tensor in given.items() if name in own and tensor.shape != own[name].shape]
    lengths = {len(given[name]) if has_other_length(given[name], own[name]) else None for name in wrong}
    return lengths.pop() if len(lengths) == 1 else None


def check_dense(model: nn.Module) -> None:
    """Refuse a model with weights that are not plain numbers in memory."""
    kind, advice = type(model).__name__, "hansfree needs dense floating-point weights: "
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_meta:
            raise OptionError(f"{name!r} of {kind} is on the meta device, without numbers. Load the model's weights.")
        if tensor.layout != torch.strided:
            raise OptionError(f"{name!r} of {kind} is {tensor.layout}. {advice}use tensor.to_dense().")
    for path, module in model.named_modules():
        if ".quantized." in f"{type(module).__module__}.":
            raise OptionError(f"{path!r} of {kind} is quantized. {advice}use the model before it was quantized.")


def check_finite(model: nn.Module, *, source: str) -> None:
    """Refuse a model with a weight that is not a finite number; in other buffers, infinity may be meant (masks)."""
    check_dense(model)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if not tensor.is_floating_point():
            continue
        is_mask = not isinstance(tensor, nn.Parameter) and not name.endswith(("running_mean", "running_var"))
        wrong = int((tensor.isnan() if is_mask else ~tensor.isfinite()).sum())
        if wrong:
            raise OptionError(
                f"The weights of {source} are not finite: {wrong} of {tensor.numel()} numbers of {name!r} are NaN or "
                "infinite. Use an earlier checkpoint."
            )


def _aligned(weights: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Return the weights without a prefix that all their names have, and that the model does not know."""
    own, given = model.state_dict(), dict(weights)
    for prefix in _PREFIXES:
        if given and own.keys().isdisjoint(given) and all(name.startswith(prefix) for name in given):
            given = {name.removeprefix(prefix): tensor for name, tensor in given.items()}
    return given


def has_other_length(given: Tensor | None, own: Tensor) -> bool:
    """Return whether tensors differ in their first axis alone, as last layers for other numbers of classes do."""
    return given is not None and given.ndim > 0 and given.shape[1:] == own.shape[1:] and given.shape != own.shape


def _unwrapped(content: Any, path: Path) -> dict[str, Tensor]:
    if isinstance(content, dict):
        for key in _WRAPPERS:
            if isinstance(content.get(key), dict):
                content = content[key]
        if content and all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in content.items()):
            return dict(content)
    raise OptionError(
        f"{str(path)!r} holds no weights by name: a state_dict is expected, alone or under {' or '.join(_WRAPPERS)}."
    )


def _without_module(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    prefix = "module." if all(name.startswith("module.") for name in weights) else ""
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items()}


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
