"""Classes that count the same: in every step of the loop, and at the minimum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from hansfree.activations import Activations, compute_features, cut_at
from hansfree.corrections import RRClArC, Vanilla
from hansfree.corrections.training import FineTuning, balanced_weights
from hansfree.models.surgery import Cut
from tests.corrections.examples import CASES, TinyImages, collect, fit_cav

DATA = TinyImages(40)


def scene() -> tuple[Cut, Activations]:
    case = CASES["convolution"]
    model = case.model()
    activations = collect(case, model, DATA)
    labels = np.where(np.arange(40) < 30, 0, 1 + np.arange(40) % 2)  # 30, 5 and 5
    activations = replace(activations, labels=labels)
    return cut_at(model, activations), activations


def test_every_group_has_the_same_sum_and_images_count_one_on_average() -> None:
    groups = np.array([3, 3, 3, 3, 7, 7, 0])
    weights = balanced_weights(groups)
    assert [round(weights[groups == group].sum(), 12) for group in (0, 3, 7)] == [round(7 / 3, 12)] * 3
    assert weights.mean() == pytest.approx(1)


@pytest.mark.parametrize("strength", [0.0, 0.3])
def test_a_step_is_that_of_the_weighted_loss(strength: float) -> None:
    cut, activations = scene()
    rate = 0.1
    tuning = FineTuning(learning_rate=rate, epochs=1, batch_size=40, balanced=True)
    method = RRClArC(fit_cav(activations), tuning=tuning)
    (head,) = method.train(cut, activations, [strength])
    features = compute_features(cut, activations, method.features(activations))
    values, tangents = (torch.from_numpy(np.array(part[0])) for part in (features.values, features.tangents))
    labels = torch.from_numpy(np.asarray(activations.labels))
    parameters = {
        name: parameter.detach().clone().requires_grad_() for name, parameter in cut.head_parameters().items()
    }

    def logits(inputs: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(cut.head, parameters, (inputs,))

    each = functional.cross_entropy(logits(values), labels, reduction="none")
    loss = torch.stack([each[labels == label].mean() for label in range(3)]).mean()  # every class alike
    _, along = torch.func.jvp(logits, (values,), (tangents[:, 0],))
    (loss + strength * along.square().sum(1).mean()).backward()
    for name, parameter in parameters.items():
        assert parameter.grad is not None
        torch.testing.assert_close(head.state[name], parameter.detach() - rate * parameter.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "options", [{"optimizer": "converged", "anchor": 1.0}, {"optimizer": "adam", "learning_rate": 0.01}]
)
def test_it_is_as_if_rare_images_were_repeated(options: dict[str, Any]) -> None:
    """Thirty images of one class and five of each other are, balanced, thirty of each."""
    cut, activations = scene()
    tuning = FineTuning(epochs=3, batch_size=1000, **options)  # the whole set is one batch
    repeated = np.concatenate([np.arange(30), *[np.arange(30, 40)] * 6])
    more = activations.select(repeated)
    (balanced,) = Vanilla(tuning=replace(tuning, balanced=True)).train(cut, activations, [0.0])
    (plain,) = Vanilla(tuning=tuning).train(cut, activations, [0.0])
    (expected,) = Vanilla(tuning=tuning).train(cut, more, [0.0])
    torch.testing.assert_close(balanced.state, expected.state, rtol=1e-3, atol=1e-4)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(plain.state, expected.state, rtol=1e-3, atol=1e-4)
