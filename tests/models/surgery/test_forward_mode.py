"""The gradient of a penalty on a forward-mode derivative, against finite differences."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, jvp, vmap

from hansfree.errors import OptionError
from hansfree.models.surgery import check_device, exact_forward_mode, forward_mode, on_device
from tests.models.zoo import Wired


def native(returned: int) -> nn.Module:
    def run(net: nn.Module, x: Tensor) -> Tensor:
        return torch.native_layer_norm(x, (6,), net.norm.weight, net.norm.bias, 1e-5)[returned]

    norm = nn.LayerNorm(6)
    nn.init.normal_(norm.weight, generator=torch.Generator().manual_seed(1))
    return Wired(run, norm=norm)


def self_attention(net: nn.Module, x: Tensor) -> Tensor:
    return net.attention(x, x, x, need_weights=False)[0]


MODULES = {
    "native layer norm": (native(0), (3, 5, 6)),
    "mean of a native layer norm": (native(1), (3, 5, 6)),
    "inverse deviation of a native layer norm": (native(2), (3, 5, 6)),
    "layer norm": (nn.LayerNorm(6), (3, 5, 6)),
    "layer norm over two axes, no affine": (nn.LayerNorm((5, 6), elementwise_affine=False), (3, 5, 6)),
    "instance norm": (nn.InstanceNorm2d(6, affine=True), (3, 6, 4, 4)),
    "instance norm with fixed statistics": (nn.InstanceNorm2d(6, track_running_stats=True), (3, 6, 4, 4)),
    "hardsigmoid": (nn.Hardsigmoid(), (3, 6)),
    "glu": (nn.GLU(), (3, 6)),
    "mean pooling": (nn.AdaptiveAvgPool2d(1), (3, 6, 4, 4)),
    "mean pooling to pairs": (nn.AdaptiveAvgPool2d((2, None)), (3, 6, 4, 4)),
    "attention": (Wired(self_attention, attention=nn.MultiheadAttention(6, 2, batch_first=True)), (3, 5, 6)),
    "encoder layer": (nn.TransformerEncoderLayer(6, 2, 12, batch_first=True), (3, 5, 6)),
}


@pytest.mark.parametrize("name", MODULES)
def test_gradient_of_a_penalty(name: str) -> None:
    module, shape = MODULES[name]
    module = module.double().eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(3)
    x, tangent, step, weight = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(4))

    def penalty(weight: Tensor) -> Tensor:
        """Depend on the weight through the value and through the tangent, as a trained layer before the module does."""
        return jvp(lambda x: module(x * weight), (x,), (tangent,))[1].pow(2).sum()

    plain = module(x)
    with exact_forward_mode():
        torch.testing.assert_close(module(x), plain)
        gradient = (grad(penalty)(weight) * step).sum()
        expected = (penalty(weight + 1e-6 * step) - penalty(weight - 1e-6 * step)) / 2e-6
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1, (1, 1), [1, 1]])
def test_channels_last_are_pooled_in_a_batch_of_heads_without_a_warning(size: int | tuple[int, int]) -> None:
    pool = nn.AdaptiveAvgPool2d(size)
    maps = torch.randn(2, 3, 4, 5, 6, generator=torch.Generator().manual_seed(0)).permute(0, 1, 4, 2, 3)
    with exact_forward_mode():  # warnings are errors here: torch has no rule for what it does to such maps
        pooled = vmap(pool)(maps)
    torch.testing.assert_close(pooled, maps.mean((3, 4), keepdim=True))


def test_half_precision_is_normalised_in_float() -> None:
    norm, generator = nn.LayerNorm(64, dtype=torch.float16), torch.Generator().manual_seed(0)
    x = (300 * torch.randn(4, 64, generator=generator)).half()
    with exact_forward_mode():
        result = norm(x)
    torch.testing.assert_close(result, norm(x), rtol=2e-3, atol=2e-3)


def test_everything_is_as_before_after_an_error() -> None:
    before = torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(RuntimeError, match="inside"), exact_forward_mode():
        raise RuntimeError("inside")
    assert torch.backends.mha.get_fastpath_enabled() == before
    assert torch.overrides._get_current_function_mode() is None


@pytest.mark.parametrize(
    ("device", "cards", "sentence"),
    [
        ("gpu", 0, "There is no device 'gpu'. Did you mean 'cpu'? Known: cpu, cuda, mps."),
        ("cpu:first", 0, "There is no device 'cpu:first'."),
        (0, 0, "There is no device 0. Known: cpu, cuda, mps."),
        ("cuda:1", 0, "This machine, or this PyTorch, has no 'cuda' device. Take the device 'cpu'."),
        ("cuda:2", 2, "There is no device 'cuda:2'. This machine has cpu, cuda:0, cuda:1."),
        ("cuda:1", 2, None),
        ("cuda", 2, None),
    ],
)
def test_devices(device: str, cards: int, sentence: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(forward_mode._KINDS, "cuda", lambda: cards > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cards)
    if sentence is None:
        check_device(device)
    else:
        with pytest.raises(OptionError, match=f"^{re.escape(sentence)}"):
            check_device(device)


def test_a_part_is_copied_to_another_device_and_stays_where_it_was() -> None:
    part = nn.Linear(2, 3)
    assert on_device(part, "cpu") is part
    moved = on_device(part, "meta")
    assert moved.weight.device.type == "meta"
    assert part.weight.device.type == "cpu"
