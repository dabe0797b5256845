"""LRP of a CAV: known results in closed form, conservation at the paper's layers, and a plaster that is found."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from hansfree.activations.cache import pool
from hansfree.cavs import SignalCAV
from hansfree.corrections.training import Pretraining, pretrain
from hansfree.data.artifacts import Plaster
from hansfree.data.datasets import InMemory
from hansfree.data.insertion import WithArtifact
from hansfree.data.lesions import SyntheticLesions
from hansfree.errors import DataError, LayerNotFoundError
from hansfree.evaluation.heatmaps import artifact_relevance
from hansfree.evaluation.localisation import _otsu, compute_cav_heatmaps, kept_masks, masks_from_heatmaps
from hansfree.models import ARCHITECTURES, build_model
from hansfree.models.surgery import split
from tests.corrections.examples import snapshot
from tests.evaluation.samples import seeded, settle, small_net


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


def test_a_learned_plaster_is_found_and_its_masks_cover_it(plaster) -> None:
    without, with_plaster, mask = plaster
    on_plaster = artifact_relevance(with_plaster.clamp(min=0), mask).mean()
    assert on_plaster > 3 * mask.mean()
    there = torch.from_numpy(mask)
    assert with_plaster[there].clamp(min=0).sum() > 3 * without[there].clamp(min=0).sum()
    found = masks_from_heatmaps(with_plaster)
    assert (found & mask).sum() / mask.sum() > 0.5
    assert (found & mask).sum() / found.sum() > 3 * mask.mean()


def test_batches_inference_mode_and_the_form_of_the_direction_change_nothing() -> None:
    model, images = settle(small_net(), bias=True).train(), seeded(6, 3, 20, 20)
    before = snapshot(model)
    pooled = pool(copy.deepcopy(model).eval()[:4](images), "max").detach().numpy()
    cav = SignalCAV().fit(pooled, np.array([0, 1, 0, 1, 0, 1]))
    expected = compute_cav_heatmaps(model, "3", cav.direction_, images)
    with torch.inference_mode():
        torch.testing.assert_close(compute_cav_heatmaps(model, "3", cav, images, batch_size=2), expected)
    assert compute_cav_heatmaps(model, "3", cav, images[:0]).shape == (0, 20, 20)
    cav.directions_, cav.scale_ = np.eye(5)[:2], np.array([3.0, 4.0])
    combined = torch.tensor([0.6, 0.8, 0, 0, 0], dtype=torch.float64)
    torch.testing.assert_close(
        compute_cav_heatmaps(model, "3", cav, images), compute_cav_heatmaps(model, "3", combined, images)
    )
    assert snapshot(model) == before


@pytest.mark.parametrize(
    ("layer", "direction", "error", "words"),
    [
        ("3", torch.ones(4), DataError, "4 channels, the layer '3' has 5"),
        ("3", torch.ones(2, 5), DataError, r"\(2, 5\)"),
        ("3", torch.full((5,), torch.nan), DataError, "finite"),
        ("33", torch.ones(5), LayerNotFoundError, "33"),
    ],
)
def test_what_does_not_fit_is_named(layer: str, direction: Tensor, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        compute_cav_heatmaps(settle(small_net(), bias=True), layer, direction, seeded(1, 3, 20, 20))


@given(seed=st.integers(0, 2**32 - 1), power=st.integers(-20, 20))
def test_the_unit_of_the_heatmap_does_not_matter(seed: int, power: int) -> None:
    heatmap = np.random.default_rng(seed).normal(size=(2, 12, 9))
    masks = masks_from_heatmaps(heatmap)
    assert masks.dtype == bool
    assert masks.any(axis=(1, 2)).all()
    np.testing.assert_array_equal(masks_from_heatmaps(torch.from_numpy(heatmap) * 2.0**power), masks)


@pytest.mark.parametrize("value", [0.0, -1.0, 0.3])
def test_a_map_that_says_nothing_gives_the_full_image(value: float) -> None:
    assert masks_from_heatmaps(np.full((1, 10, 10), value)).all()
    assert masks_from_heatmaps(np.full((1, 1, 1), value)).all()
    assert masks_from_heatmaps(np.full((0, 4, 5), value)).shape == (0, 4, 5)


def literal_otsu(values: np.ndarray) -> float:
    """Try every value as the threshold; the best leaves the least variance within the two sides."""

    def within(threshold: float) -> float:
        sides = values[values <= threshold], values[values > threshold]
        return sum(len(side) * side.var() for side in sides)

    return min(np.unique(values)[:-1], key=within)


@pytest.mark.parametrize("seed", range(5))
def test_the_threshold_is_otsus(seed: int) -> None:
    values = np.random.default_rng(seed).exponential(size=40).round(1)  # rounded: ties must stay on one side
    assert _otsu(values) == literal_otsu(values)


def test_what_cannot_be_used_is_named() -> None:
    with pytest.raises(DataError, match=r"\(4, 4\)"):
        masks_from_heatmaps(np.zeros((4, 4)))
    with pytest.raises(DataError, match="1 of 2 heatmaps are not finite; the first is number 1"):
        masks_from_heatmaps(np.stack([np.zeros((3, 3)), np.full((3, 3), np.nan)]))


def test_damaged_masks_are_found_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    masks, found = np.random.default_rng(0).random((3, 8, 8)) > 0.5, []

    def find() -> np.ndarray:
        found.append(True)
        return masks

    path = tmp_path / "masks.npz"
    for size in (None, 0, 50, -1, "other"):
        if size == "other":
            np.savez(path, other=masks)
        elif size is not None:
            path.write_bytes(path.read_bytes()[:size])
        for _ in range(2):
            np.testing.assert_array_equal(kept_masks(path, find), masks)
    assert len(found) == 5
    assert caplog.text.count("masks.npz is damaged") == 4
