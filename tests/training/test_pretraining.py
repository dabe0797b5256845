"""Training a whole model: it learns, it is reproducible, and it leaves the global randomness alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from hansfree.artifacts import Brightness
from hansfree.datasets import InMemory, Stamped, SyntheticLesions
from hansfree.errors import OptionError
from hansfree.training import Pretraining, pretrain


@pytest.fixture(scope="module")
def data() -> InMemory:
    return InMemory(Stamped(SyntheticLesions(40, size=32), Brightness(), share=1.0, only_class=0))


def small_model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=4),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.1),
            nn.Linear(8, 4),
        )


def test_it_learns_and_ends_in_eval_mode(data: InMemory) -> None:
    model, batch = small_model(), data.batch(range(len(data)))
    before = functional.cross_entropy(model(batch.image), torch.as_tensor(batch.label)).item()
    pretrain(model, data, Pretraining(epochs=8, batch_size=8, learning_rate=0.02))
    assert not any(module.training for module in model.modules())
    after = functional.cross_entropy(model(batch.image), torch.as_tensor(batch.label)).item()
    assert after < before - 0.1


def test_the_same_seed_gives_the_same_bytes_whatever_the_global_state(data: InMemory) -> None:
    states = []
    for noise, seed in ((1, 5), (2, 5), (2, 6)):
        with torch.random.fork_rng():
            torch.manual_seed(noise)
            before = torch.random.get_rng_state()
            model = small_model()
            pretrain(model, data, Pretraining(epochs=1, batch_size=8, seed=seed))
            assert torch.equal(torch.random.get_rng_state(), before)
            states.append(model.state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert any(not torch.equal(states[0][key], states[2][key]) for key in states[0])


@pytest.mark.parametrize("options", [{"learning_rate": 0.0}, {"epochs": 0}, {"batch_size": 1}])
def test_options_that_cannot_train(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="must be above 0"):
        Pretraining(**options)


def test_fewer_images_than_a_batch_are_refused(data: InMemory) -> None:
    with pytest.raises(OptionError, match="40 images do not fill one batch of 64"):
        pretrain(small_model(), data, Pretraining())
