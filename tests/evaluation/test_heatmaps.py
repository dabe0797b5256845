"""LRP against slow references, its canonical form, what has no rule, and the promise that the model is not touched."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torchvision.models import VGG, SwinTransformer, resnet18
from zennit.composites import EpsilonPlusFlat, LayerMapComposite, layer_map_base
from zennit.rules import Epsilon, ZPlus
from zennit.torchvision import ResNetCanonizer, VGGCanonizer
from zennit.types import BatchNorm, Linear

from hansfree.activations.cache import along
from hansfree.corrections import Projection
from hansfree.data import SyntheticLesions, Timestamp, natural_bias
from hansfree.data.splits import SourceSubset
from hansfree.errors import DataError, LayerNotFoundError, OptionError, SplitError
from hansfree.evaluation.canonical import QuickZPlus, canonical_form
from hansfree.evaluation.heatmaps import artifact_relevance, compute_heatmaps, explanation_of
from hansfree.evaluation.localisation import compute_cav_heatmaps
from hansfree.models import ARCHITECTURES, PAPER_MODELS, DemoNet
from hansfree.models.surgery import insert_after, layer_order, split
from hansfree.pipeline.workspace import Workspace
from tests.corrections.examples import Untraceable, snapshot
from tests.evaluation.samples import seeded, settle, small_net, small_vgg, without_biases

EPSILON = 1e-6


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
    with torch.inference_mode():
        found = compute_heatmaps(model, images, target, batch_size=2)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12)
    assert compute_heatmaps(model, images[:0], 2).shape == (0, 6, 6)


# at a sum the model runs a graph of its own, whose residual sums must be canonised all the same
@pytest.mark.parametrize("layer", ["layer4.1.add", "layer4.1.bn2"])
def test_relevance_passes_a_projection_unchanged(layer: str) -> None:
    rng, images = np.random.default_rng(0), seeded(2, 3, 32, 32)
    projection = Projection(rng.normal(size=(1, 512)), np.array([0.3]), pooling="max")
    projected = insert_after(settle(resnet18(num_classes=3), bias=False), layer, projection.double())
    total = compute_heatmaps(projected, images, 1, explanation="lrp").sum(dim=(1, 2))
    torch.testing.assert_close(total, projected(images)[:, 1].detach(), rtol=0.01, atol=0)  # z+ loses a little


@pytest.mark.parametrize(
    ("images", "target", "options", "error", "words"),
    [
        (torch.zeros(3, 20, 20), 0, {}, DataError, "shape"),
        (torch.zeros(3), 0, {}, DataError, "shape"),
        (torch.zeros(2, 3, 20, 20), torch.tensor([0, 1, 2]), {}, DataError, "one per image"),
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


def test_inserted_test_masks_are_known_though_those_of_training_images_are_not(tmp_path: Path) -> None:
    source = SyntheticLesions(24, size=32)
    parts = [SourceSubset(source, np.arange(first, first + 8)) for first in (0, 8, 16)]
    data = natural_bias(parts, np.arange(24) % 4 == 0, name="artifact", biased_class=0, insert=Timestamp())
    model, rows = settle(small_net(), bias=True).float(), np.arange(6)
    setting: Any = SimpleNamespace(model=model, data=data, tuning=SimpleNamespace(device="cpu"))
    workspace = Workspace(setting, tmp_path, tmp_path)  # without a CAV that could find the artifact
    truth = data.test_biased.batch(rows).mask
    assert truth.any(dim=(1, 2)).all()
    np.testing.assert_array_equal(
        workspace.relevance_of(model), artifact_relevance(workspace.heatmaps(model, rows), truth)
    )


def test_artifact_relevance_is_the_published_one_on_the_same_masks(published: Mapping[str, np.ndarray]) -> None:
    for kind in ("binary", "soft"):
        rows = published[f"rel_fixed_{kind}_test_ids"]
        masks = published[f"rel_fixed_{kind}_test_final_mask"].astype(bool)
        share = artifact_relevance(published["rel_heatmap_fixed"][rows], masks)
        np.testing.assert_allclose(share, published[f"rel_fixed_{kind}_test_fraction"], rtol=1e-5)


def test_artifact_relevance_is_of_random_images_the_same_for_all_models(tmp_path: Path) -> None:
    setting: Any = SimpleNamespace(data=SimpleNamespace(test_biased=range(400)), tuning=SimpleNamespace(device="cpu"))
    rows, again = (Workspace(setting, tmp_path, tmp_path, sets=()).random_rows for _ in range(2))
    assert len(set(rows)) == 96
    assert rows.max() > 300, "not the first of a set in class order"
    np.testing.assert_array_equal(rows, again)
    setting.data.test_biased = range(5)
    assert Workspace(setting, tmp_path, tmp_path, sets=()).random_rows.tolist() == [0, 1, 2, 3, 4]


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


@pytest.fixture(scope="module", params=["vgg16", "resnet18", "efficientnet_b0"])
def model(request) -> nn.Module:
    return without_biases(request.param)


@pytest.fixture
def images(model: nn.Module) -> Tensor:
    side = 32 if isinstance(model, VGG) else 64  # at 32 px nothing but borders would be left of EfficientNet's maps
    return seeded(2, 3, side, side, seed=9)


def relevance_of(form: nn.Module, images: Tensor, composite: LayerMapComposite) -> tuple[Tensor, Tensor]:
    """Return the relevance of the pixels for logit 1, and the logit."""
    images = images.clone().requires_grad_()
    with composite.context(form) as hooked:
        logit = hooked(images)[:, 1]
        (relevance,) = torch.autograd.grad(logit, images, logit.detach())
    return relevance.sum(dim=1), logit.detach()


def test_relevance_is_conserved_exactly_by_a_rule_that_loses_none(model: nn.Module, images: Tensor, caplog) -> None:
    # The epsilon rule shares all relevance out, whatever the signs; so a loss would be the form's. Measured: 4e-6.
    every_layer = LayerMapComposite([*layer_map_base(1e-9), (Linear, Epsilon(epsilon=1e-9))])
    form = canonical_form(model, images[:1])
    torch.testing.assert_close(form(images), model(images), rtol=1e-9, atol=1e-9)
    assert not any(isinstance(module, BatchNorm) for module in form.modules())
    total, logit = relevance_of(form, images, every_layer)
    torch.testing.assert_close(total.sum(dim=(1, 2)), logit, rtol=1e-4, atol=0)
    assert not caplog.records


@pytest.mark.parametrize(
    ("build", "canonizer"),
    [(small_vgg, VGGCanonizer), (lambda: resnet18(num_classes=3), ResNetCanonizer)],
    ids=["vgg", "resnet"],
)
def test_it_gives_the_heatmaps_of_zennits_own_canonizers(build, canonizer) -> None:
    model = settle(build(), bias=True)
    for module in model.modules():
        if getattr(module, "inplace", False):
            module.inplace = False
    images = seeded(2, 3, 32, 32)
    expected, _ = relevance_of(model, images, EpsilonPlusFlat(canonizers=[canonizer()]))
    # zennit leaves an identity batch norm that still divides by sqrt(1 + 1e-5).
    torch.testing.assert_close(compute_heatmaps(model, images, 1), expected, rtol=1e-3, atol=1e-5)


class Gated(nn.Module):
    """An activation scaled by a gate that depends on it, and by a factor that is no gate where asked."""

    def __init__(self, *, sharp: bool) -> None:
        super().__init__()
        self.conv, self.dense, self.sharp = nn.Conv2d(3, 4, 3, bias=False), nn.Conv2d(4, 4, 1), sharp

    def forward(self, images: Tensor) -> Tensor:
        maps = self.conv(images)
        gate = self.dense(maps.mean(dim=(2, 3), keepdim=True))
        gate = torch.exp(gate) if self.sharp else torch.sigmoid(gate)
        return torch.flatten(nn.functional.max_pool2d(maps * gate, 6), 1)


def test_a_gate_is_a_constant_factor() -> None:
    model = settle(Gated(sharp=False), bias=True)
    images = seeded(2, 3, 8, 8)
    heatmap = compute_heatmaps(model, images, 1)
    # By hand: all of the logit goes to the largest position of map 1, and flat from there to its 3 x 3 pixels.
    for image, found, logit in zip(images, heatmap, model(images)[:, 1].detach()):
        place = int(model.conv(image[None])[0, 1].argmax())
        row, column = divmod(place, 6)
        expected = torch.zeros(8, 8, dtype=torch.float64)
        expected[row : row + 3, column : column + 3] = logit / 9
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("sharp", "says"), [(False, ""), (True, "no rule for mean, exp, mul in Gated")])
def test_a_product_that_is_no_gate_is_named(sharp: bool, says: str, caplog) -> None:
    compute_heatmaps(settle(Gated(sharp=sharp), bias=True), seeded(1, 3, 8, 8), 0)
    assert says in caplog.text
    assert bool(says) == bool(caplog.records)


class Odd(nn.Module):
    """A convolution and a batch norm that do not simply follow each other."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.conv, self.norm, self.kind = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), kind

    def forward(self, images: Tensor) -> Tensor:
        if self.kind == "called before it":
            return self.conv(self.norm(images)).flatten(1)
        if self.kind == "one convolution, twice":
            return self.conv(self.norm(self.conv(images))).flatten(1)
        maps = self.conv(images)
        if self.kind == "read by another":
            return (maps + self.norm(maps)).flatten(1)
        if self.kind == "depends on the images":
            return maps.flatten(1) if images.sum() > 0 else -maps.flatten(1)
        return maps.flatten(1) if isinstance(images, torch.fx.Proxy) else 2 * maps.flatten(1)


@pytest.mark.parametrize(
    ("kind", "layer", "words"),
    [
        ("called before it", None, "BatchNorm2d that cannot be merged"),
        ("one convolution, twice", None, "(?=.*BatchNorm2d that cannot be merged)(?=.*called more than once)"),
        ("read by another", None, "BatchNorm2d that cannot be merged"),
        *(("depends on the images", layer, "cannot be traced") for layer in (None, "conv")),
        *(("another graph", layer, "does not give the model's logits") for layer in (None, "conv")),
    ],
)
def test_models_without_a_form_are_named(kind: str, layer: str | None, words: str) -> None:
    with pytest.raises(SplitError, match=words):
        canonical_form(settle(Odd(kind), bias=True), seeded(1, 3, 8, 8), layer=layer)


class ChannelsLast(nn.Module):
    """All linear, its maps with the channels last: LRP has rules for everything in it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.mix, self.fc = nn.Conv2d(3, 4, 8, stride=8, bias=False), nn.Linear(4, 5), nn.Linear(80, 3)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.mix(self.conv(images).permute(0, 2, 3, 1)).flatten(1))


def timm_model(name: str, **options: object) -> nn.Module:
    timm = pytest.importorskip("timm")
    return timm.create_model(name, num_classes=3, **options)  # type: ignore[no-any-return]


MODELS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "swin": (lambda: SwinTransformer([4, 4], 8, [1, 1], [2, 2], [4, 4], num_classes=3), "features.3"),
    "vit": (lambda: timm_model("vit_tiny_patch16_224", img_size=32, depth=2), "blocks.1"),
    "convnext": (lambda: timm_model("convnext_atto", depths=(1, 1, 1, 1)), "stages.3"),
    "untraceable": (Untraceable, "features"),
}


IMAGES = seeded(3, 3, 32, 32)


@functools.cache
def built(name: str) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MODELS[name][0]().double().eval()


@pytest.mark.parametrize("name", MODELS)
def test_gradient_x_input_where_lrp_has_no_rules(name: str, caplog: pytest.LogCaptureFixture) -> None:
    model = built(name)
    assert explanation_of(model, IMAGES) == "gradient x input"
    assert "Its heatmaps are gradient x input." in caplog.text
    found = compute_heatmaps(model, IMAGES, torch.tensor([0, 2, 1]), batch_size=2)
    # the derivative of every pixel's logit share, by finite differences along the image itself: sums up to x . grad
    for image, heatmap, label in zip(IMAGES, found, (0, 2, 1)):
        step = 1e-5
        with torch.no_grad():
            ends = [model(image[None] * (1 + sign * step))[0, label] for sign in (1, -1)]
        torch.testing.assert_close(heatmap.sum(), (ends[0] - ends[1]) / (2 * step), rtol=1e-4, atol=1e-7)
        assert heatmap.std() > 0


@pytest.mark.parametrize("name", MODELS)
def test_a_cav_is_localised_in_every_model(name: str) -> None:
    model, layer = built(name), MODELS[name][1]
    kept: list[Tensor] = []
    module = model.get_submodule(layer)
    handle = module.register_forward_hook(lambda _m, _a, output: kept.append(output.clone()))
    pixels = IMAGES.clone().requires_grad_()
    model(pixels)
    handle.remove()
    raw = kept[0]
    order = layer_order(model, layer, IMAGES[:1])
    assert (order is None) == (name != "swin")
    maps = raw if order is None else raw.permute(order)
    direction = seeded(maps.shape[2 if maps.ndim == 3 else 1], seed=1)
    score = torch.einsum("ntc,c->" if maps.ndim == 3 else "nchw,c->", maps, direction)
    (slope,) = torch.autograd.grad(score, pixels)
    found = compute_cav_heatmaps(model, layer, direction, IMAGES, batch_size=2)
    if name == "untraceable":
        assert explanation_of(model, IMAGES, layer=layer) == "gradient x input"
    torch.testing.assert_close(found, (slope * IMAGES).sum(1), rtol=1e-6, atol=1e-12)


def test_lrp_of_a_cav_finds_the_channels_of_a_turned_map() -> None:
    model = settle(ChannelsLast(), bias=False)
    direction = seeded(5, seed=1)
    assert explanation_of(model, IMAGES, layer="mix") == "lrp"
    score = (model.mix(model.conv(IMAGES).permute(0, 2, 3, 1)) @ direction).flatten(1).sum(1)
    found = compute_cav_heatmaps(model, "mix", direction, IMAGES)
    torch.testing.assert_close(found.sum((1, 2)), score.detach(), rtol=1e-4, atol=1e-6)


def test_what_lies_behind_the_layer_does_not_matter_to_its_explanation() -> None:
    model = built("vit")
    assert explanation_of(model, IMAGES, layer="patch_embed.proj") == "lrp"
    with pytest.raises(LayerNotFoundError, match="patch_embed"):
        explanation_of(model, IMAGES, layer="patch_embed.pro")


@pytest.mark.parametrize("build", [small_net, lambda: resnet18(num_classes=3)], ids=["small", "resnet"])
def test_what_lrp_conserves_is_explained_by_lrp(
    build: Callable[[], nn.Module], caplog: pytest.LogCaptureFixture
) -> None:
    model = settle(build(), bias=True)
    assert explanation_of(model, IMAGES) == "lrp"
    assert not caplog.records
    by_choice = compute_heatmaps(model, IMAGES, 1)
    assert torch.equal(by_choice, compute_heatmaps(model, IMAGES, 1, explanation="lrp"))
    other = compute_heatmaps(model, IMAGES, 1, explanation="gradient x input")
    pixels = IMAGES.clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(pixels)[:, 1].sum(), pixels)
    torch.testing.assert_close(other, (slope * IMAGES).sum(1))
    assert not torch.allclose(other, by_choice)


def test_a_rule_that_fails_is_no_reason_to_stop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("a hook of zennit")

    monkeypatch.setattr("zennit.composites.EpsilonPlusFlat", fail)
    assert compute_heatmaps(settle(small_net(), bias=True), IMAGES, 1).shape == (3, 32, 32)
    assert "LRP fails on Sequential" in caplog.text


def test_lrp_that_is_asked_for_and_not_possible_is_an_error() -> None:
    with pytest.raises(SplitError, match="cannot be traced"):
        compute_heatmaps(built("untraceable"), IMAGES, 0, explanation="lrp")


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
    assert lost < (0.03 if name == "efficientnet_b0" else 1e-3)  # z+ loses a little behind SiLU, see above
    assert not caplog.records


class Fragile(nn.Module):
    """Fails once the rules of LRP are attached."""

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > 1:
            raise ValueError("only one image at a time")
        return x


@pytest.mark.parametrize(
    ("build", "error"),
    [
        *((build, None) for build in (small_net, small_vgg)),
        *((functools.partial(built, name), None) for name in MODELS),
        (small_vgg, "0 to 2"),
        (lambda: nn.Sequential(*small_net(), Fragile()), "only one image"),
    ],
)
def test_the_model_is_not_touched(build: Callable[[], nn.Module], error: str | None) -> None:
    """Neither after success, nor after an error."""
    model = copy.deepcopy(build()).double().train()
    before = snapshot(model)
    with nullcontext() if error is None else pytest.raises((OptionError, ValueError), match=error):
        compute_heatmaps(model, IMAGES, 99 if error == "0 to 2" else 1)
    assert snapshot(model) == before
    assert "forward" not in {key for module in model.modules() for key in vars(module)}


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.SiLU()])  # without and with negative inputs
def test_the_quick_rule_is_zennits_to_the_last_digit(activation: nn.Module) -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(activation, nn.Conv2d(3, 5, 3, padding=1), nn.ReLU(), nn.Conv2d(5, 2, 3)).double()
    images, found = torch.randn(4, 3, 8, 8, dtype=torch.float64), []
    for rule in (QuickZPlus(), ZPlus()):
        with LayerMapComposite([(nn.Conv2d, rule)]).context(layers) as hooked:
            given = images.clone().requires_grad_()
            output = hooked(given)
            found.append(torch.autograd.grad(output, given, output.detach())[0])
    assert torch.equal(*found)
    assert found[0].abs().max() > 0


def test_a_composite_of_zennit_gives_its_own_heatmaps_of_a_dataset() -> None:
    model, images = settle(resnet18(num_classes=3), bias=True), seeded(2, 3, 32, 32)
    composite = EpsilonPlusFlat(canonizers=[ResNetCanonizer()])
    before = copy.deepcopy(model.state_dict())
    found = compute_heatmaps(model, [(image, 0) for image in images], 1, composite=composite)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    inputs = images.clone().requires_grad_()
    with composite.context(model) as hooked:
        logits = hooked(inputs)
        weights = torch.zeros_like(logits)
        weights[:, 1] = logits[:, 1].detach()
        (relevance,) = torch.autograd.grad(logits, inputs, weights)
    torch.testing.assert_close(found, relevance.sum(1))
    with pytest.raises(OptionError, match="own rules"):
        compute_heatmaps(model, images, 1, composite=composite, explanation="lrp")
