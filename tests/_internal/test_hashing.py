"""Fingerprints change with what a model computes, and with nothing else; random numbers belong to their key."""

from __future__ import annotations

import copy
import random
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from hansfree._internal.hashing import fingerprint, fingerprint_model, seeded

parts = st.lists(st.one_of(st.text(max_size=3), st.binary(max_size=3).map(lambda b: np.frombuffer(b, np.uint8))))


def plain(items: list[Any]) -> list[Any]:
    return [item if isinstance(item, str) else ("array", item.tobytes()) for item in items]


@settings(max_examples=50)
@given(parts, parts)
def test_equal_exactly_when_the_parts_are(a: list[Any], b: list[Any]) -> None:
    assert (fingerprint(*a) == fingerprint(*b)) == (plain(a) == plain(b))
    assert fingerprint("aü", np.arange(3)) == "498f0bf08bb2ce78da455e80"  # in every process


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.register_buffer("mean", torch.zeros(3), persistent=False)
        self.offset, self.power, self.sizes, self.activation = torch.ones(2), 2.0, (1, 2), torch.relu
        self.mean_color, self.scale = np.array([0.5, 0.4]), np.float32(2)
        self.table, self.steps = {"a": 1, "b": [0.5, np.int64(3)]}, [torch.zeros(2), 1]
        self.small = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))


@pytest.fixture
def net() -> Net:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Net()


def change(name: str, value: Any) -> Any:
    return lambda net: setattr(net, name, value)


@pytest.mark.parametrize(
    "edit",
    [
        lambda net: net.conv.weight.data[0, 0, 0, 0].add_(1e-6),
        lambda net: net.norm.num_batches_tracked.add_(1),
        lambda net: net.small.data[0].mul_(2),
        lambda net: net.mean.add_(1),  # in no state_dict
        lambda net: net.offset.add_(1),  # neither parameter nor buffer
        lambda net: setattr(net.norm, "eps", 1e-3),
        change("sizes", (1, 3)),
        change("activation", torch.tanh),
        change("mean_color", np.array([0.5, 0.3])),
        change("scale", np.float64(2)),
        change("table", {"a": 1, "b": [0.5, np.int64(4)]}),
        change("table", {"a": 1, "c": [0.5, np.int64(3)]}),
        change("steps", [torch.ones(2), 1]),
        change("conv", nn.Conv2d(3, 4, 3, padding=1)),
    ],
)
def test_whatever_changes_what_a_model_computes_changes_it(net: Net, edit: Any) -> None:
    other = copy.deepcopy(net)
    assert fingerprint_model(other) == fingerprint_model(net)
    edit(other)
    assert fingerprint_model(other) != fingerprint_model(net)


def test_what_does_not_matter_does_not_change_it(net: Net) -> None:
    before = fingerprint_model(net)
    net.eval().requires_grad_(False)
    net.conv.weight.grad = torch.ones_like(net.conv.weight)
    net.to(memory_format=torch.channels_last)
    assert fingerprint_model(net) == before


def test_without_leaves_out_exactly_the_named(net: Net) -> None:
    outer = nn.ModuleDict({"inner": net, "conv": nn.Conv2d(3, 4, 3)})
    before = fingerprint_model(outer, without=["conv.weight"])
    outer["conv"].weight.data.add_(1)
    assert fingerprint_model(outer, without=["conv.weight"]) == before
    net.conv.weight.data.add_(1)
    assert fingerprint_model(outer, without=["conv.weight"]) != before


keys = st.lists(st.integers(0, 2**31), min_size=1, max_size=3)


def draw(*key: int) -> list[float]:
    with seeded(*key) as generator:
        return [*torch.rand(3).tolist(), *torch.rand(3, generator=generator).tolist()]


@settings(max_examples=50)
@given(keys, keys)
def test_numbers_belong_to_their_key(a: list[int], b: list[int]) -> None:
    assert draw(*a) == draw(*a)
    if len(a) == len(b) and a != b:
        assert draw(*a) != draw(*b)


@pytest.mark.parametrize("fails", [False, True])
def test_global_state_stays_as_it_was(fails: bool) -> None:
    torch_before, numpy_before, python_before = torch.get_rng_state(), np.random.get_state(), random.getstate()
    with suppress(RuntimeError), seeded(0):
        torch.rand(10)
        if fails:
            raise RuntimeError
    assert torch.equal(torch_before, torch.get_rng_state())
    assert all(np.array_equal(a, b) for a, b in zip(numpy_before, np.random.get_state()))
    assert python_before == random.getstate()
