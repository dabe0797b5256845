"""Recycled memory: the same numbers, in the same place."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hansfree.training import recycling
from hansfree.training.recycling import Recycling

ROWS = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
WEIGHT = torch.randn(1, 5, 4, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def _all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recycling, "_LARGE", 0)


def gradients(memory: Recycling, rows: Tensor, parameter: Tensor) -> tuple[Tensor, Tensor | None]:
    rows = rows.clone().requires_grad_()
    memory.product(rows, parameter.squeeze(0)).square().sum().backward()
    assert parameter.grad is not None
    return parameter.grad, rows.grad


def test_gradients_are_those_of_the_plain_product() -> None:
    memory, parameter = Recycling(), WEIGHT.clone().requires_grad_()
    for scale in (1, 3):  # the second is written over the first
        found = gradients(memory, scale * ROWS, parameter)
        rows, weight = (scale * ROWS).requires_grad_(), WEIGHT.clone().requires_grad_()
        (rows @ weight[0].T).square().sum().backward()
        torch.testing.assert_close(found, (weight.grad, rows.grad))
        memory.take_back([parameter])


def test_the_next_gradient_lies_where_the_last_one_lay() -> None:
    memory, parameter = Recycling(), WEIGHT.clone().requires_grad_()
    first, _ = gradients(memory, ROWS, parameter)
    place = first.data_ptr()
    memory.take_back([parameter])
    assert parameter.grad is None
    second, _ = gradients(memory, ROWS, parameter)
    assert second.data_ptr() == place


def test_two_weights_of_one_shape_have_a_place_each() -> None:
    memory, parameters = Recycling(), [WEIGHT.clone().requires_grad_() for _ in range(2)]
    places = []
    for _ in range(2):
        first, second = (parameter.squeeze(0) for parameter in parameters)
        memory.product(memory.product(ROWS, first)[:, :4], second).sum().backward()
        one, other = (parameter.grad for parameter in parameters)
        assert one is not None
        assert other is not None
        places.append({one.data_ptr(), other.data_ptr()})
        assert not torch.equal(one, other)
        memory.take_back(parameters)
    assert places[0] == places[1]
    assert len(places[0]) == 2


def test_heads_that_are_stacked_or_in_half_precision_take_the_plain_product() -> None:
    memory, stacked = Recycling(), WEIGHT.expand(2, 5, 4).clone().requires_grad_()
    torch.func.vmap(lambda weight: ROWS @ weight.T)(stacked).sum().backward()
    memory.take_back([stacked])
    assert stacked.grad is None
    assert memory.lend(WEIGHT.shape[1:]) is None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert memory.product(ROWS, WEIGHT[0]).dtype == torch.bfloat16
