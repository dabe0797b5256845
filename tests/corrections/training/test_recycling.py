"""Recycled memory: the same numbers, in the same place."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from hansfree.activations import cut_again
from hansfree.corrections import RRClArC, Vanilla
from hansfree.corrections.training import FineTuning, Heads, recycling
from hansfree.corrections.training.recycling import Recycling
from tests.corrections.examples import CASES, TinyImages, collect, fit_cav

DATA = TinyImages(20)
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


@pytest.mark.parametrize("method", ["vanilla", "rr-clarc"])
@pytest.mark.parametrize("strengths", [[1.0], [0.1, 1.0]])
def test_training_keeps_at_most_one_gradient_of_a_weight(method: str, strengths: list[float]) -> None:
    """What no product asks for is let go: else every step would leave some."""
    case = CASES["mlp"]
    model = case.model()
    activations = collect(case, model, DATA)
    tuning = FineTuning(epochs=3, batch_size=8)
    correction = Vanilla(tuning=tuning) if method == "vanilla" else RRClArC(fit_cav(activations), tuning=tuning)
    kept: list[int] = []

    def watch(heads: Heads) -> list[None]:
        kept.append(sum(map(len, heads.memory._spare.values())))
        return [None] * heads.count

    list(correction.train(cut_again(model, activations), activations, strengths, watch=watch))
    is_asked = method == "rr-clarc" and len(strengths) == 1
    weights = sum(type(module) is nn.Linear for module in model.modules())
    assert kept == [weights if is_asked else 0] * 3


def test_half_precision_takes_the_plain_product() -> None:
    memory = Recycling()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert memory.product(ROWS, WEIGHT[0]).dtype == torch.bfloat16
