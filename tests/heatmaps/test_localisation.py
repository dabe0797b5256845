"""LRP of a CAV: known results in closed form, conservation at the paper's layers, and a plaster that is found."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hansfree.activations.cache import along, pool
from hansfree.cavs import SignalCAV
from hansfree.corrections.training import Pretraining, pretrain
from hansfree.data.artifacts import Plaster
from hansfree.data.datasets import InMemory
from hansfree.data.insertion import WithArtifact
from hansfree.data.lesions import SyntheticLesions
from hansfree.errors import DataError, LayerNotFoundError, OptionError
from hansfree.evaluation.heatmaps import artifact_relevance
from hansfree.evaluation.localisation import compute_cav_heatmaps, masks_from_heatmaps
from hansfree.models import ARCHITECTURES, PAPER_MODELS, DemoNet, build_model
from hansfree.models.surgery import split
from tests.heatmaps.samples import seeded, settle, small_net, without_biases


def test_behind_one_convolution_it_is_the_score_spread_over_its_field() -> None:
    model = settle(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)), bias=True)
    images, direction = seeded(2, 3, 6, 6), seeded(4, seed=1)
    expected = np.zeros((2, 6, 6))
    for n, activation in enumerate(model[0](images).detach().numpy()):
        for i, j in np.ndindex(4, 4):
            # Flat rule: each of the 3 x 3 pixels gets the same of the score a . h at this position.
            expected[n, i : i + 3, j : j + 3] += activation[:, i, j] @ direction.numpy() / 9
    found = compute_cav_heatmaps(model, "0", direction, images)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


def test_behind_two_linear_layers_it_is_the_contribution_of_each_pixel() -> None:
    # Positive weights and inputs: then z+ is input times weight, and 1 x 1 fields keep every pixel to itself.
    model = nn.Sequential(
        nn.Conv2d(3, 5, 1, bias=False), nn.Conv2d(5, 4, 1, bias=False), nn.Flatten(), nn.Linear(36, 2)
    )
    model = model.double()
    for conv in model[:2]:
        conv.weight.data = seeded(*conv.weight.shape).abs()
    images, direction = seeded(2, 3, 3, 3).abs(), seeded(4, seed=1)
    score = torch.einsum("nchw,c->nhw", model[:2](images), direction).detach()
    torch.testing.assert_close(compute_cav_heatmaps(model, "1", direction, images), score, rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", ["demo", *PAPER_MODELS])
def test_relevance_adds_up_to_the_score_at_the_papers_layers(name: str, caplog) -> None:
    layer = ARCHITECTURES[name].layer
    model = settle(DemoNet(3), bias=False) if name == "demo" else without_biases(name)
    images = seeded(2, 3, 32, 32, seed=9) if name == "vgg16" else seeded(2, 3, 64, 64, seed=9)
    activations = split(model, layer).trunk(images)[0].detach()
    direction = seeded(activations.shape[1], seed=1).abs()
    score = along(activations, direction).sum(dim=1)
    total = compute_cav_heatmaps(model, layer, direction, images).sum(dim=(1, 2))
    size = along(activations.abs(), direction).sum(dim=1)
    # Relative to the size of what was added up, because the score itself may be next to nothing.
    lost = float(((total - score).abs() / size).max())
    assert lost < (0.03 if name == "efficientnet_b0" else 1e-3)  # see test_canonical.py for what z+ loses
    assert not caplog.records


def test_batches_and_inference_mode_change_nothing() -> None:
    model, images, direction = settle(small_net(), bias=True), seeded(5, 3, 20, 20), seeded(5, seed=1)
    expected = compute_cav_heatmaps(model, "3", direction, images)
    with torch.inference_mode():
        found = compute_cav_heatmaps(model, "3", direction, images, batch_size=2)
    torch.testing.assert_close(found, expected)
    assert compute_cav_heatmaps(model, "3", direction, images[:0]).shape == (0, 20, 20)


def test_the_model_is_not_touched() -> None:
    model = settle(small_net(), bias=True).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    compute_cav_heatmaps(model, "3", seeded(5), seeded(2, 3, 20, 20))
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_cav_is_its_direction() -> None:
    model, images = settle(small_net(), bias=True), seeded(6, 3, 20, 20)
    pooled = pool(model[:4](images), "max").detach().numpy()
    cav = SignalCAV().fit(pooled, np.array([0, 1, 0, 1, 0, 1]))
    found = compute_cav_heatmaps(model, "3", cav, images)
    torch.testing.assert_close(found, compute_cav_heatmaps(model, "3", cav.direction_, images))


def test_several_directions_are_combined_by_their_sizes() -> None:
    model, images = settle(small_net(), bias=True), seeded(2, 3, 20, 20)
    cav = SignalCAV().fit(seeded(6, 5).numpy(), np.array([0, 1, 0, 1, 0, 1]))
    cav.directions_, cav.scale_ = np.eye(5)[:2], np.array([3.0, 4.0])
    found = compute_cav_heatmaps(model, "3", cav, images)
    combined = torch.tensor([0.6, 0.8, 0, 0, 0], dtype=torch.float64)
    torch.testing.assert_close(found, compute_cav_heatmaps(model, "3", combined, images))


def test_what_does_not_fit_is_named() -> None:
    model, images = settle(small_net(), bias=True), seeded(1, 3, 20, 20)
    with pytest.raises(DataError, match="4 channels, the layer '3' has 5"):
        compute_cav_heatmaps(model, "3", torch.ones(4), images)
    with pytest.raises(DataError, match=r"\(2, 5\)"):
        compute_cav_heatmaps(model, "3", torch.ones(2, 5), images)
    with pytest.raises(DataError, match="finite"):
        compute_cav_heatmaps(model, "3", torch.full((5,), torch.nan), images)
    with pytest.raises(LayerNotFoundError, match="33"):
        compute_cav_heatmaps(model, "33", torch.ones(5), images)
    with pytest.raises(OptionError, match="batch_size"):
        compute_cav_heatmaps(model, "3", torch.ones(5), images, batch_size=0)


@pytest.fixture(scope="module")
def plaster() -> tuple[Tensor, np.ndarray, np.ndarray]:
    """Return the localisation of a plaster that the demo's model has learned, on images without and with it."""
    poisoned = WithArtifact(SyntheticLesions(400, size=48), Plaster(), share=0.5, only_class=0)
    model = build_model("demo", classes=4)
    pretrain(model, InMemory(poisoned), Pretraining(epochs=6, batch_size=40))
    scenes = SyntheticLesions(30, size=48, start=1000)
    clean, biased = (WithArtifact(scenes, Plaster(), share=share).batch(range(30)) for share in (0, 1))
    layer = ARCHITECTURES["demo"].layer
    trunk = split(model, layer).trunk
    with torch.no_grad():
        means = [pool(trunk(batch.image)[0], "max").mean(dim=0) for batch in (clean, biased)]
    direction = means[1] - means[0]
    maps = [compute_cav_heatmaps(model, layer, direction, batch.image) for batch in (clean, biased)]
    return *maps, biased.mask.numpy()


def test_a_learned_plaster_is_found(plaster) -> None:
    without, with_plaster, mask = plaster
    on_plaster = artifact_relevance(with_plaster.clamp(min=0), mask).mean()
    assert on_plaster > 3 * mask.mean()
    there = torch.from_numpy(mask)
    assert with_plaster[there].clamp(min=0).sum() > 3 * without[there].clamp(min=0).sum()


def test_masks_of_the_localisation_cover_the_plaster(plaster) -> None:
    _, with_plaster, mask = plaster
    found = masks_from_heatmaps(with_plaster)
    recall = (found & mask).sum() / mask.sum()
    precision = (found & mask).sum() / found.sum()
    assert recall > 0.5
    assert precision > 3 * mask.mean()
