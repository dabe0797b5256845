"""One pass shows the same at every layer as a pass for each; one backward pass gives all derivatives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import jvp

from hansfree.activations import collect_activations
from hansfree.activations.features import spread
from hansfree.corrections.selection import log_odds
from hansfree.models.layers import feature_layers
from hansfree.models.surgery import exact_forward_mode, split
from hansfree.pipeline.layer_search import EveryLayer
from tests.corrections.examples import CASES, TinyImages, snapshot

DATA = TinyImages(10)


def layers_of(model: nn.Module) -> list[str]:
    return [layer.name for layer in feature_layers(model, DATA.images[:2])]


@pytest.mark.parametrize("name", CASES)
def test_all_layers_in_one_pass_are_each_in_its_own(name: str) -> None:
    model = CASES[name].model()
    before = snapshot(model)
    every = EveryLayer(model, layers_of(model), DATA.images[:2])
    pooled, logits = every.pooled(torch.split(DATA.images, 4))
    assert snapshot(model) == before
    assert CASES[name].layer in every.layers
    np.testing.assert_allclose(logits, model(DATA.images).detach().numpy(), rtol=1e-5, atol=1e-6)
    for layer in every.layers:
        for pooling in ("max", "mean"):
            expected = collect_activations(model, layer, DATA, pooling=pooling).pooled
            np.testing.assert_allclose(pooled[layer][pooling], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_one_backward_pass_gives_the_derivative_from_every_layer(name: str) -> None:
    layers = layers_of(CASES[name].model())
    model, images = CASES[name].model().double(), DATA.images.double()
    model.requires_grad_(False)
    every = EveryLayer(model, layers, images[:2])
    rng = np.random.default_rng(0)
    channels = {layer: every.pooled([images])[0][layer]["max"].shape[1] for layer in every.layers}
    shifts = {layer: rng.normal(size=count) for layer, count in channels.items()}
    found = every.slopes(torch.split(images, 3), shifts, 1)
    assert set(found) == set(every.layers)
    for layer, slopes in found.items():
        cut = split(model, layer, example=images[:2])
        live = cut.trunk(images)
        with exact_forward_mode(), torch.no_grad():
            expected = jvp(
                lambda *inputs, cut=cut: log_odds(cut.head(*cut.phi(*inputs)), 1),
                live,
                spread(torch.from_numpy(shifts[layer]), live),
            )[1]
        np.testing.assert_allclose(slopes, expected.numpy(), rtol=1e-8, atol=1e-12, err_msg=layer)


def test_a_layer_that_gives_no_row_per_image_is_dropped() -> None:
    class Windows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.inner, self.fc = nn.Conv2d(3, 4, 4, stride=4), nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            rows = self.conv(images).permute(0, 2, 3, 1).reshape(-1, 2, 4)
            return self.fc(self.inner(rows).reshape(-1, 4, 4).mean(1))

    every = EveryLayer(Windows().eval(), ["conv", "inner"], DATA.images[:2])
    assert every.layers == ("conv",)


def test_channels_that_stand_last_are_turned() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.mlp, self.fc = nn.Conv2d(3, 4, 2, stride=2), nn.Linear(4, 7), nn.Linear(7, 3)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.fc(self.mlp(self.conv(images).permute(0, 2, 3, 1)).tanh().mean((1, 2)))

    model = Last().eval()
    pooled, _ = EveryLayer(model, ["mlp"], DATA.images[:2]).pooled([DATA.images])
    assert pooled["mlp"]["max"].shape == (10, 7)
    np.testing.assert_allclose(pooled["mlp"]["max"], collect_activations(model, "mlp", DATA).pooled, rtol=1e-5)
