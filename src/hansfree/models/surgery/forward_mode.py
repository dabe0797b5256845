"""Exact forward-mode derivatives on every device."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from hansfree.errors import OptionError, nearest

_KINDS: dict[str, Callable[[], bool]] = {
    "cpu": lambda: True,
    "cuda": torch.cuda.is_available,
    "mps": torch.backends.mps.is_available,
}


def check_device(device: str) -> None:
    """Refuse a device that does not exist, or that this machine does not have."""
    kind, _, number = str(device).partition(":")
    if kind not in _KINDS or not (number or "0").isdecimal():
        raise OptionError(f"There is no device {device!r}.{nearest(kind, _KINDS)} Known: {', '.join(_KINDS)}.")
    if not _KINDS[kind]():
        raise OptionError(f"This machine, or this PyTorch, has no {kind!r} device. Take the device 'cpu'.")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        cards = (f"cuda:{card}" for card in range(torch.cuda.device_count()))
        raise OptionError(f"There is no device {str(device)!r}. This machine has {', '.join(('cpu', *cards))}.")


def on_device(part: nn.Module, device: str) -> nn.Module:
    """Return the part on the device; the given one stays where it is, for the cache is streamed through it there."""
    return part if torch.device(device).type == "cpu" else copy.deepcopy(part).to(device)


@contextmanager
def exact_forward_mode() -> Iterator[None]:
    """Make ``torch.func.jvp`` and the backward pass through it work, and right; the backward may run outside."""
    _load_forward_mode()
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH), _WrittenOut():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


@functools.cache
def _load_forward_mode() -> None:
    """Load what torch loads with its first dual number, without the deprecation warning that it gives to itself."""
    with warnings.catch_warnings(), forward_ad.dual_level():
        warnings.simplefilter("ignore", FutureWarning)
        forward_ad.make_dual(torch.zeros(()), torch.zeros(()))  # type: ignore[no-untyped-call]


def _standardise(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    centred = wide - wide.mean(axes, keepdim=True)
    variance = centred.square().mean(axes, keepdim=True)
    return centred * torch.rsqrt(variance + eps)


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    result = _standardise(input, tuple(range(-len(normalized_shape), 0)), eps)
    result = result if weight is None else result * weight
    return (result if bias is None else result + bias).to(input.dtype)


def _native_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    axes = tuple(range(-len(normalized_shape), 0))
    variance, mean = torch.var_mean(input, axes, correction=0, keepdim=True)
    return _layer_norm(input, normalized_shape, weight, bias, eps), mean, torch.rsqrt(variance + eps)


def _instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    if not use_input_stats:  # with fixed statistics torch is right
        fixed = running_mean, running_var, weight, bias, False, momentum, eps
        return functional.batch_norm(input, *fixed)
    channels = (1, -1, *[1] * (input.ndim - 2))
    result = _standardise(input, tuple(range(2, input.ndim)), eps)
    result = result if weight is None else result * weight.reshape(channels)
    return (result if bias is None else result + bias.reshape(channels)).to(input.dtype)


def _hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    return (input / 6 + 0.5).clamp(0, 1)


def _glu(input: Tensor, dim: int = -1) -> Tensor:
    value, gate = input.chunk(2, dim)
    return value * gate.sigmoid()


def _adaptive_avg_pool2d(input: Tensor, output_size: int | Sequence[int | None] | None) -> Tensor:
    if output_size == 1 or output_size in ((1, 1), [1, 1]):
        return input.mean((-2, -1), keepdim=True)
    return functional.adaptive_avg_pool2d(input, output_size)  # type: ignore[arg-type]  # its stubs know pairs only


_PLAIN: dict[Any, Callable[..., Tensor | tuple[Tensor, ...]]] = {
    functional.layer_norm: _layer_norm,
    torch.layer_norm: _layer_norm,
    torch.native_layer_norm: _native_layer_norm,
    functional.instance_norm: _instance_norm,
    torch.instance_norm: _instance_norm,
    functional.hardsigmoid: _hardsigmoid,
    functional.glu: _glu,
    functional.adaptive_avg_pool2d: _adaptive_avg_pool2d,
}


class _WrittenOut(TorchFunctionMode):
    """Replace the operations of the table for the length of the block."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _PLAIN.get(func, func)(*args, **(kwargs or {}))
