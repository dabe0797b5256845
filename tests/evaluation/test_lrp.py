"""LRP against a slow reference, conservation of relevance, and the promise that the model is not touched."""

from __future__ import annotations

import copy
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, fx, nn
from torchvision.models import resnet18

from hansfree.errors import DataError, OptionError
from hansfree.evaluation.heatmaps import artifact_relevance, compute_heatmaps
from hansfree.models.surgery import insert_after
from tests.evaluation.samples import seeded, settle, small_net, small_vgg, without_biases

EPSILON = 1e-6


class Centred(nn.Module):
    """Stands for an inserted projection: an affine change of the activation that LRP must not look into."""

    def forward(self, activation: Tensor) -> Tensor:
        return activation - 0.5 * activation.mean(dim=1, keepdim=True)


def stabilised(z: float) -> float:
    return z + EPSILON if z >= 0 else z - EPSILON


def reference_heatmap(
    conv1: nn.Conv2d, conv2: nn.Conv2d, dense: nn.Linear, image: np.ndarray, target: int
) -> np.ndarray:
    """LRP by loops over every connection: epsilon (dense), z+ (second convolution), flat (first convolution)."""

    def convolve(conv: nn.Conv2d, x: np.ndarray) -> np.ndarray:
        w, b, k = conv.weight.detach().numpy(), conv.bias.detach().numpy(), conv.kernel_size[0]
        side = x.shape[1] - k + 1
        out = np.zeros((w.shape[0], side, side))
        for o, i, j in np.ndindex(out.shape):
            out[o, i, j] = (w[o] * x[:, i : i + k, j : j + k]).sum() + b[o]
        return out

    a1 = np.maximum(convolve(conv1, image), 0)
    a2 = np.maximum(convolve(conv2, a1), 0)
    w, b = dense.weight.detach().numpy(), dense.bias.detach().numpy()
    logit = float(w[target] @ a2.ravel() + b[target])

    r2 = (a2.ravel() * w[target] / stabilised(logit) * logit).reshape(a2.shape)

    r1 = np.zeros_like(a1)
    w2, b2, k = conv2.weight.detach().numpy(), conv2.bias.detach().numpy(), conv2.kernel_size[0]
    for o, i, j in np.ndindex(a2.shape):
        positive = np.maximum(w2[o], 0) * a1[:, i : i + k, j : j + k]
        r1[:, i : i + k, j : j + k] += positive / stabilised(positive.sum() + max(b2[o], 0)) * r2[o, i, j]

    r0 = np.zeros_like(image)
    k = conv1.kernel_size[0]
    for o, i, j in np.ndindex(a1.shape):
        field = image[:, i : i + k, j : j + k]
        r0[:, i : i + k, j : j + k] += r1[o, i, j] / stabilised(field.size)
    return r0.sum(axis=0)


def test_equals_the_slow_reference() -> None:
    conv1, conv2, dense = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 3, 2), nn.Linear(27, 3)
    model = settle(nn.Sequential(conv1, nn.ReLU(), conv2, nn.ReLU(), nn.Flatten(), dense), bias=True)
    images = seeded(3, 3, 6, 6)
    target = torch.tensor([0, 2, 1])
    expected = [reference_heatmap(conv1, conv2, dense, x.numpy(), int(t)) for x, t in zip(images, target)]
    np.testing.assert_allclose(
        compute_heatmaps(model, images, target, batch_size=2).numpy(), expected, rtol=1e-9, atol=1e-12
    )


# Measured in float64: 1.4e-5 (small), 1.1e-5 (VGG), 4.5e-5 (ResNet-18); what is lost is the rules' stabiliser of 1e-6.
@pytest.mark.parametrize(
    "build", [small_net, small_vgg, lambda: resnet18(num_classes=3)], ids=["small", "vgg", "resnet"]
)
def test_relevance_adds_up_to_the_logit_without_biases(build) -> None:
    model = settle(build(), bias=False)
    images = seeded(2, 3, 32, 32)
    logits = model(images)[:, 1].detach()
    total = compute_heatmaps(model, images, 1).sum(dim=(1, 2))
    assert ((total - logits).abs() / logits.abs()).max() < 2e-4


def test_a_traced_graph_gets_the_same_heatmaps_as_its_model() -> None:
    model = settle(resnet18(num_classes=3), bias=True)
    images = seeded(2, 3, 32, 32)
    traced = fx.symbolic_trace(copy.deepcopy(model))
    torch.testing.assert_close(compute_heatmaps(traced, images, 0), compute_heatmaps(model, images, 0))


def state_of(model: nn.Module) -> tuple[dict[str, Tensor], list[int], list[bool], list[bool]]:
    hooks = [
        len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) + len(m._backward_pre_hooks)
        for m in model.modules()
    ]
    state = {key: value.clone() for key, value in model.state_dict().items()}
    return state, hooks, [m.training for m in model.modules()], [p.requires_grad for p in model.parameters()]


def test_an_error_in_the_middle_leaves_no_hook() -> None:
    class Fragile(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if len(x) > 1:
                raise ValueError("only one image at a time")
            return x

    model = settle(nn.Sequential(*small_net(), Fragile()), bias=True)
    before = state_of(model)
    with pytest.raises(ValueError, match="only one image"):
        compute_heatmaps(model, seeded(4, 3, 20, 20), 0)
    assert state_of(model)[1:] == before[1:]


def test_works_inside_inference_mode_and_in_batches() -> None:
    model = settle(small_net(), bias=True)
    images = seeded(5, 3, 20, 20)
    expected = compute_heatmaps(model, images, 2)
    with torch.inference_mode():
        torch.testing.assert_close(compute_heatmaps(model, images, 2, batch_size=2), expected)
    assert compute_heatmaps(model, images[:0], 2).shape == (0, 20, 20)


@pytest.mark.parametrize("target", [1, 99], ids=["success", "error"])
@pytest.mark.parametrize(
    "build", [small_net, small_vgg, lambda: resnet18(num_classes=3)], ids=["small", "vgg", "resnet"]
)
def test_the_model_is_not_touched(build, target: int) -> None:
    model = settle(build(), bias=True).train()
    before = state_of(model)
    with pytest.raises(OptionError, match="0 to 2") if target == 99 else nullcontext():
        compute_heatmaps(model, seeded(2, 3, 32, 32), target)
    after = state_of(model)
    assert after[1:] == before[1:]
    assert after[0].keys() == before[0].keys()
    assert all(torch.equal(after[0][key], value) for key, value in before[0].items())
    assert "forward" not in {key for module in model.modules() for key in vars(module)}


def nested(layer: str) -> nn.Module:
    plain = settle(small_net(), bias=False)
    assert isinstance(plain, nn.Sequential)
    return nn.Sequential(*plain[:4], Centred(), *plain[4:])


def in_resnet(layer: str) -> nn.Module:
    return insert_after(settle(resnet18(num_classes=3), bias=False), layer, Centred())


@pytest.mark.parametrize(
    ("build", "layer", "side", "tolerance"),
    [
        # at a sum the model runs a graph of its own, whose residual sums must be canonised all the same
        *((in_resnet, layer, 32, 2e-4) for layer in ("layer4.1.add", "layer2.0.add", "layer4.1.bn2", "layer3.0")),
        (nested, "", 20, 1e-3),
        (lambda layer: insert_after(without_biases("efficientnet_b0"), layer, Centred()), "features.8.1", 64, 0.05),
    ],
)
def test_relevance_passes_a_projection_unchanged(build, layer: str, side: int, tolerance: float) -> None:
    projected = build(layer)
    images = seeded(2, 3, side, side, seed=9 if side == 64 else 0)
    passed = compute_heatmaps(projected, images, 1, pass_through=(Centred,))
    logits = projected(images)[:, 1].detach()
    torch.testing.assert_close(passed.sum(dim=(1, 2)), logits, rtol=tolerance, atol=0)
    assert side != 20 or not torch.allclose(passed, compute_heatmaps(projected, images, 1))


@pytest.mark.parametrize(
    ("images", "target", "options", "error", "words"),
    [
        (torch.zeros(3, 20, 20), 0, {}, DataError, "shape"),
        (torch.zeros(3), 0, {}, DataError, "shape"),
        (torch.zeros(2, 3, 20, 20), torch.tensor([0, 1, 2]), {}, DataError, "one per image"),
        (torch.zeros(1, 3, 20, 20), 0, {"pass_through": (nn.Sequential,)}, OptionError, "Sequential holds other"),
        (torch.zeros(1, 3, 20, 20), 0, {"explanation": "lpr"}, OptionError, "Did you mean 'lrp'"),
        (torch.zeros(1, 3, 20, 20), 0, {"batch_size": 0}, OptionError, "batch_size must be at least 1"),
    ],
)
def test_wrong_arguments_are_named(images: Tensor, target, options, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        compute_heatmaps(small_net(), images, target, **options)


def test_artifact_relevance_is_the_papers_formula() -> None:
    maps, masks = seeded(3, 4, 5).numpy(), np.random.default_rng(1).random((3, 4, 5)) < 0.3
    expected = []
    for heatmap, mask in zip(maps, masks):
        inside = sum(abs(r * m) for r, m in zip(heatmap.ravel(), mask.ravel()))
        expected.append(inside / sum(abs(r) for r in heatmap.ravel()))
    np.testing.assert_allclose(artifact_relevance(maps, masks), expected)
    np.testing.assert_allclose(artifact_relevance(torch.from_numpy(maps), torch.from_numpy(masks)), expected)


def test_artifact_relevance_of_nothing_is_not_zero() -> None:
    maps = np.zeros((3, 2, 2))
    maps[1, 0, 0] = np.nan
    maps[2, 0, 0] = -2
    masks = np.ones((3, 2, 2), dtype=bool)
    np.testing.assert_array_equal(artifact_relevance(maps, masks), [np.nan, np.nan, 1])
    with pytest.raises(DataError, match="masks"):
        artifact_relevance(maps, masks[:2])


@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(1e-3, 1e3))
def test_artifact_relevance_is_a_share(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    maps, masks = rng.normal(size=(2, 3, 3)), rng.random((2, 3, 3)) < 0.5
    share = artifact_relevance(maps, masks)
    assert ((share >= 0) & (share <= 1)).all()
    np.testing.assert_allclose(share + artifact_relevance(maps, ~masks), 1)
    np.testing.assert_allclose(artifact_relevance(-scale * maps, masks), share)
