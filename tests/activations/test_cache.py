"""The cache holds what the model computes at the layer, for every image once, and leaves the model alone."""

from __future__ import annotations

import copy
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hansfree.activations import Activations, collect_activations, cut_again
from hansfree.errors import CacheError, DataError, LayerNotFoundError, OptionError, SplitError
from hansfree.models import build_model
from tests.activations.samples import Pictures, batches_of, branching, hooked, lively, many_skips, small_net

LAYER = "features.4"  # maps of 4 x 4 at 16 px


def live(activations: Activations, batch_size: int = 256) -> list[torch.Tensor]:
    return [torch.cat(parts) for parts in zip(*activations.stream(batch_size=batch_size))]


@pytest.fixture(params=["memory", "disk"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "disk" else None


def test_values_are_the_models_own(folder: Path | None) -> None:
    model, data = small_net(), Pictures(70)
    activations = collect_activations(model, LAYER, data, folder=folder, batch_size=16)
    expected = hooked(model, LAYER, batches_of(data, 16))
    (got,) = live(activations, batch_size=13)
    torch.testing.assert_close(got, expected)  # up to rounding: batch norms are folded (0030)
    assert activations.shape == expected.shape[1:]
    assert np.array_equal(activations.pooled, got.amax((2, 3)))
    mean = collect_activations(model, LAYER, data, folder=folder, batch_size=16, pooling="mean")
    np.testing.assert_allclose(mean.pooled, expected.mean((2, 3)), rtol=1e-5, atol=1e-6)


def test_facts_keep_the_order_of_the_dataset(folder: Path | None) -> None:
    data = Pictures(300)
    activations = collect_activations(small_net(), LAYER, data, folder=folder, batch_size=32)
    rows = np.arange(300)
    assert len(activations) == 300
    assert np.array_equal(activations.labels, rows * 7 % 4)
    assert np.array_equal(activations.ids, 1000 + 2 * rows)
    assert activations.has_artifact is not None
    assert np.array_equal(activations.has_artifact, rows % 3 == 0)
    assert activations.has_artifact.dtype == bool


def test_every_image_is_read_once(folder: Path | None) -> None:
    data = Pictures(300)
    collect_activations(small_net(), LAYER, data, folder=folder, batch_size=32)
    assert data.reads == Counter({0: 2} | dict.fromkeys(range(1, 300), 1))  # the first also checks the cut


def test_disk_is_memory(tmp_path: Path) -> None:
    model, data = small_net(), Pictures(300)
    memory = collect_activations(model, LAYER, data, batch_size=32)
    disk = collect_activations(model, LAYER, data, batch_size=32, folder=tmp_path)
    assert len(disk.shards) == 2
    assert torch.equal(live(memory)[0], live(disk)[0])
    for fact in ("pooled", "labels", "ids", "has_artifact"):
        assert np.array_equal(getattr(memory, fact), getattr(disk, fact))
        assert getattr(memory, fact).dtype == getattr(disk, fact).dtype
        assert isinstance(getattr(disk, fact), np.memmap)
    assert (memory.trunk, memory.shape) == (disk.trunk, disk.shape)


def test_half_precision_is_close_and_half_as_large(tmp_path: Path) -> None:
    model, data = small_net(), Pictures(64)
    full = collect_activations(model, LAYER, data, folder=tmp_path)
    half = collect_activations(model, LAYER, data, folder=tmp_path, precision="float16")
    (a,), (b,) = live(full), live(half)
    assert b.dtype == torch.float32
    assert not torch.equal(a, b)
    assert torch.allclose(a, b, rtol=1e-3, atol=1e-4)
    assert np.array_equal(full.pooled, half.pooled)  # pooled before it is rounded
    sizes = [sum(f.stat().st_size for f in found.folder.glob("shard*")) for found in (full, half)]  # type: ignore[union-attr]
    assert sizes[1] < 0.6 * sizes[0]


def test_skip_connections_are_kept(folder: Path | None) -> None:
    model = lively(build_model("resnet18", classes=4, seed=0))
    data = Pictures(6, size=32)
    activations = collect_activations(model, "layer4.1.bn2", data, folder=folder, batch_size=3)
    output, skip = live(activations)
    batches = batches_of(data, 3)
    for found, layer in ((output, "layer4.1.bn2"), (skip, "layer4.0")):
        torch.testing.assert_close(found, hooked(model, layer, batches), rtol=1e-4, atol=1e-5)
    cut = cut_again(model, activations)
    with torch.no_grad():
        assert torch.allclose(cut.head(*cut.phi(output, skip)), model.eval()(torch.cat(batches)), atol=1e-5)


def test_more_than_ten_live_tensors_keep_their_order(folder: Path | None) -> None:
    model, data = many_skips(), Pictures(5)
    activations = collect_activations(model, "layer", data, folder=folder)
    cut = cut_again(model, activations)
    tensors = live(activations)
    assert len(tensors) == 13
    with torch.no_grad():
        assert torch.allclose(cut.head(*cut.phi(*tensors)), model(batches_of(data, 5)[0]), atol=1e-5)


def test_a_model_that_cannot_be_traced_is_cut_by_hooks(folder: Path | None, caplog: pytest.LogCaptureFixture) -> None:
    model, data = branching(), Pictures(20)
    with caplog.at_level(logging.WARNING):
        activations = collect_activations(model, "stem", data, folder=folder, batch_size=8)
    assert "cut by hooks" in caplog.text
    output, images = live(activations)
    batches = batches_of(data, 8)
    assert not activations.traced
    assert torch.equal(output, hooked(model, "stem", batches))
    assert torch.equal(images, torch.cat(batches))
    cut = cut_again(model, activations)
    with torch.no_grad():
        assert torch.allclose(cut.head(*cut.phi(output, images)), model.eval()(images), atol=1e-5)


class Counted(nn.Module):
    """Not traceable; two linear layers follow the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.hidden, self.last = nn.Conv2d(3, 4, 3), nn.Linear(4, 5), nn.Linear(5, 2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.layer(images)
        return self.last(self.hidden(x.mean((2, 3)) if float(x.detach().sum()) < 1e9 else x.amax((2, 3))))


def test_a_model_cut_by_hooks_is_known_again_whatever_is_trained() -> None:
    model = Counted().eval()
    activations = collect_activations(model, "layer", Pictures(4))
    assert not activations.traced
    assert set(cut_again(model, activations, train="last").trainable) == {"last.weight", "last.bias"}
    assert len(cut_again(model, activations).trainable) == 4
    changed = copy.deepcopy(model)
    with torch.no_grad():
        changed.layer.weight.add_(1)
    with pytest.raises(CacheError):
        cut_again(changed, activations, train="last")


def test_tensors_of_the_stream_can_be_differentiated(folder: Path | None) -> None:
    activations = collect_activations(small_net(), LAYER, Pictures(4), folder=folder)
    (batch,) = next(activations.stream())
    (batch.requires_grad_() ** 2).sum().backward()
    assert batch.grad is not None


def state_of(model: nn.Module) -> tuple[Any, ...]:
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    modules = [(m.training, len(m._forward_hooks), len(m._forward_pre_hooks), sorted(vars(m))) for m in model.modules()]
    return tensors, modules, [p.requires_grad for p in model.parameters()], [p.grad for p in model.parameters()]


@pytest.mark.parametrize("make", [small_net, branching])
@pytest.mark.parametrize("fail_at", [None, 9])
def test_model_is_unchanged(make: Any, fail_at: int | None, folder: Path | None) -> None:
    model = make().train()
    next(model.parameters()).requires_grad_(False)
    before, rng = state_of(model), torch.get_rng_state()
    layer = "stem" if make is branching else LAYER
    if fail_at is None:
        collect_activations(model, layer, Pictures(12), folder=folder, batch_size=4)
    else:
        with pytest.raises(OSError, match="disk is gone"):
            collect_activations(model, layer, Pictures(12, fail_at=fail_at), folder=folder, batch_size=4)
    after = state_of(model)
    assert all(torch.equal(before[0][name], after[0][name]) for name in before[0])
    assert before[1:] == after[1:]
    assert torch.equal(rng, torch.get_rng_state())


def test_weights_that_are_not_finite_are_refused(folder: Path | None) -> None:
    model = small_net()
    with torch.no_grad():
        model.get_parameter("features.3.weight")[0, 0, 0, 0] = torch.nan
    with pytest.raises(DataError, match=r"at 'features.4' are not finite in float32 .* images 0 to 3") as caught:
        collect_activations(model, LAYER, Pictures(8), folder=folder, batch_size=4)
    assert "use precision" not in str(caught.value)


def test_overflow_of_half_precision_is_refused(tmp_path: Path) -> None:
    model = small_net()
    with torch.no_grad():
        model.get_parameter("features.4.weight").mul_(1e6)
    collect_activations(model, LAYER, Pictures(4))
    with pytest.raises(DataError, match=r"not finite in float16 .*or use precision='float32'"):
        collect_activations(model, LAYER, Pictures(4), precision="float16", folder=tmp_path)
    assert not list(tmp_path.rglob("shard*"))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"precision": "float15"}, "precision is 'float15'. Did you mean 'float16'? Allowed: 'float32', 'float16'."),
        ({"pooling": "man"}, "pooling is 'man'. Did you mean 'mean'? Allowed: 'max', 'mean'."),
        ({"device": "gpu"}, "There is no device 'gpu'. Did you mean 'cpu'? Known: cpu, cuda, mps."),
    ],
)
def test_unknown_choices_are_refused(options: dict[str, Any], sentence: str) -> None:
    data = Pictures(4)
    with pytest.raises(OptionError) as caught:
        collect_activations(small_net(), LAYER, data, **options)
    assert str(caught.value) == sentence
    assert not data.reads


def test_unknown_layer_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(LayerNotFoundError, match=r"Did you mean 'features\.4'"):
        collect_activations(small_net(), "feature.4", Pictures(4), folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_progress_reaches_its_end() -> None:
    told, done = [], []

    def progress(steps: Any, *, total: int, label: str) -> Any:
        told.append((total, label))
        for step in steps:
            yield step
            done.append(label)

    collect_activations(small_net(), LAYER, Pictures(40), batch_size=16, progress=progress)
    assert told == [(3, "activations at features.4")]
    assert len(done) == 3


@pytest.mark.parametrize(("make", "layer", "head"), [(small_net, LAYER, "classifier"), (branching, "stem", "fc")])
def test_cut_again_accepts_another_head(make: Any, layer: str, head: str) -> None:
    model = make()
    activations = collect_activations(model, layer, Pictures(4))
    other = copy.deepcopy(model).train()
    with torch.no_grad():
        other.get_parameter(f"{head}.weight").add_(1)
    cut = cut_again(other, activations)
    assert torch.equal(cut.head_parameters()[f"{head}.weight"], other.get_parameter(f"{head}.weight"))


@pytest.mark.parametrize(
    ("make", "layer", "changed"),
    [
        (small_net, LAYER, "features.0.weight"),
        (small_net, LAYER, "features.4.running_mean"),
        (branching, "norm", "stem.bias"),
        (branching, "norm", "inner.fc.weight"),  # ends like "fc.weight", which is trained
    ],
)
def test_cut_again_refuses_another_trunk(make: Any, layer: str, changed: str) -> None:
    model = make()
    activations = collect_activations(model, layer, Pictures(4))
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.state_dict()[changed].add_(0.01)
    with pytest.raises(CacheError, match="were not taken from this model"):
        cut_again(other, activations)


def test_cut_again_refuses_another_setting_of_the_trunk() -> None:
    model = branching()
    activations = collect_activations(model, "norm", Pictures(4))
    model.factor = 2.0
    with pytest.raises(CacheError, match="were not taken from this model"):
        cut_again(model, activations)


def test_tensors_without_the_images_in_front_are_refused(folder: Path | None) -> None:
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.side, self.layer, self.fc = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc((self.layer(x) - self.side(x).mean(0, keepdim=True)).mean((2, 3)))

    with pytest.raises(SplitError, match=r"shape \(1, 4, 14, 14\), which does not have the 3 images"):
        collect_activations(Centred(), "layer", Pictures(6), folder=folder, batch_size=3)
