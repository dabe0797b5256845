"""The cache holds what the model computes at the layer, for every image once, and leaves the model alone."""

from __future__ import annotations

import copy
import itertools
import logging
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

from hansfree.activations import (
    Activations,
    FeatureSpec,
    collect_activations,
    compute_features,
    cut_at,
    find_pairs,
    join,
)
from hansfree.activations.cache import (
    along,
    at_every_position,
    channel_axis,
    count_positions,
    pool,
    position_axes,
    random_signs,
    sum_positions,
)
from hansfree.errors import CacheError, DataError, OptionError, SplitError
from tests.activations.samples import Pictures, batches_of, branching, hooked, many_skips, small_net, state_of
from tests.corrections.examples import CASES, TinyImages, collect
from tests.models.zoo import Wired

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


def test_disk_is_memory(tmp_path: Path) -> None:
    model, data, rows = small_net(), Pictures(300), np.arange(300)
    memory, disk = (collect_activations(model, LAYER, data, batch_size=32, folder=each) for each in (None, tmp_path))
    assert len(disk.shards) == 2
    assert data.reads == Counter({0: 4} | dict.fromkeys(range(1, 300), 2))  # the first also checks the cut
    assert torch.equal(live(memory)[0], live(disk)[0])
    facts = {"labels": rows * 7 % 4, "ids": 1000 + 2 * rows, "has_artifact": rows % 3 == 0, "pooled": memory.pooled}
    for fact, expected in facts.items():
        assert np.array_equal(getattr(memory, fact), expected)
        assert np.array_equal(getattr(disk, fact), expected)
        assert getattr(memory, fact).dtype == getattr(disk, fact).dtype
        assert isinstance(getattr(disk, fact), np.memmap)
    assert (memory.trunk, memory.shape) == (disk.trunk, disk.shape)
    spec = FeatureSpec(directions=np.eye(16, dtype=np.float32)[:2], at_layer=True)
    ours, theirs = (compute_features(cut_at(model, one), one, spec) for one in (memory, disk))
    for a, b in zip((*ours.values, *ours.tangents), (*theirs.values, *theirs.tangents), strict=True):
        assert isinstance(b, np.memmap)
        assert np.array_equal(a, b)


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


@pytest.mark.parametrize(("make", "layer", "count"), [(many_skips, "layer", 13), (branching, "stem", 2)])
def test_what_runs_beside_the_layer_is_kept(
    make: Any, layer: str, count: int, folder: Path | None, caplog: pytest.LogCaptureFixture
) -> None:
    model, data = make(), Pictures(20)
    with caplog.at_level(logging.WARNING):
        activations = collect_activations(model, layer, data, folder=folder, batch_size=8)
    batches, found = batches_of(data, 8), live(activations)
    assert len(found) == count
    torch.testing.assert_close(found[0], hooked(model, layer, batches))
    assert activations.traced is (make is many_skips)
    assert ("cut by hooks" in caplog.text) is not activations.traced
    if not activations.traced:  # nothing is folded, and the images are kept
        assert torch.equal(found[0], hooked(model, layer, batches))
        assert torch.equal(found[1], torch.cat(batches))
    cut = cut_at(model, activations)
    with torch.no_grad():
        assert torch.allclose(cut.head(*cut.phi(*found)), model.eval()(torch.cat(batches)), atol=1e-5)


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
    assert state_of(model) == before
    assert torch.equal(rng, torch.get_rng_state())


def test_weights_that_are_not_finite_are_refused(folder: Path | None) -> None:
    model = small_net()
    with torch.no_grad():
        model.get_parameter("features.3.weight")[0, 0, 0, 0] = torch.nan
    with pytest.raises(DataError, match=r"at 'features.4' are not finite in float32 .* images 0 to 3") as caught:
        collect_activations(model, LAYER, Pictures(8), folder=folder, batch_size=4)
    assert "use precision" not in str(caught.value)
    overflowing = small_net()
    with torch.no_grad():
        overflowing.get_parameter("features.4.weight").mul_(1e6)
    with pytest.raises(DataError, match=r"not finite in float16 .*or use precision='float32'"):
        collect_activations(overflowing, LAYER, Pictures(4), precision="float16", folder=folder)
    assert folder is None or not list(folder.rglob("shard*"))


@pytest.mark.parametrize(
    ("make", "layer", "changed"),
    [
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
    for train in ("all", "last"):  # cut by hooks, a model is known again whatever is trained
        assert cut_at(model, activations, train=train).trainable
        with pytest.raises(CacheError, match="were not taken from this model"):
            cut_at(other, activations, train=train)


def test_tensors_without_the_images_in_front_are_refused(folder: Path | None) -> None:
    def centred(net: nn.Module, x: Tensor) -> Tensor:
        return net.fc((net.layer(x) - net.side(x).mean(0, keepdim=True)).mean((2, 3)))

    model = Wired(centred, side=nn.Conv2d(3, 4, 3), layer=nn.Conv2d(3, 4, 3), fc=nn.Linear(4, 2))
    with pytest.raises(SplitError, match=r"shape \(1, 4, 14, 14\), which does not have the 3 images"):
        collect_activations(model, "layer", Pictures(6), folder=folder, batch_size=3)


CASE = CASES["mlp"]
ROWS = np.array([7, 0, 19, 7])


def test_rows_are_those_of_the_whole(folder: Path | None) -> None:
    every = collect_activations(CASE.model(), CASE.layer, TinyImages(20), folder=folder, data_key="tiny", batch_size=3)
    some = every.select(ROWS)
    for name in ("pooled", "labels", "ids", "has_artifact"):
        assert np.array_equal(getattr(some, name), np.asarray(getattr(every, name))[ROWS])
    assert torch.equal(live(some)[0], live(every)[0][ROWS])
    for rows in ([-1, 0], [0, 20]):
        with pytest.raises(DataError, match="there are 20 images"):
            every.select(np.array(rows))


PAIRED_CASE = CASES["convolution"]


def test_joined_activations_are_those_of_both_sets() -> None:
    model = PAIRED_CASE.model()
    parts = [collect(PAIRED_CASE, model, TinyImages(9, artifact=kind)) for kind in ("leaks", "all")]
    joined, expected = join(*parts), collect(PAIRED_CASE, model, TinyImages(9, artifact="pairs"))
    for name in ("labels", "ids", "has_artifact"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(expected, name))
    np.testing.assert_allclose(joined.pooled, expected.pooled, rtol=1e-5)
    streams = [torch.cat([batch[0] for batch in found.stream()]) for found in (joined, expected)]
    torch.testing.assert_close(*streams)
    with pytest.raises(CacheError, match="same layer"):
        join(parts[0], replace(parts[1], layer="conv"))


def test_pairs_are_found_by_id_and_those_under_two_labels_are_refused() -> None:
    model, parts = PAIRED_CASE.model(), [TinyImages(9, artifact=kind) for kind in ("none", "all")]
    paired = collect(PAIRED_CASE, model, TinyImages(9, artifact="pairs"))
    rows, bits = find_pairs(paired), np.asarray(paired.has_artifact)
    np.testing.assert_array_equal(paired.ids[rows[:, 0]], paired.ids[rows[:, 1]])
    assert (bits[rows] == [False, True]).all()
    assert len(rows) == int((~bits).sum()) > 0
    assert [len(part) for part in paired.samples()] == [len(paired)] * 2
    cut, (clean, biased) = cut_at(model, paired), rows.T
    change, only = (compute_features(cut, paired, FeatureSpec(pairs=kind)) for kind in ("change", "only"))
    np.testing.assert_array_equal(change.tangents[0][clean, 0], change.values[0][biased] - change.values[0][clean])
    np.testing.assert_array_equal(change.tangents[0][biased], -change.tangents[0][clean])
    np.testing.assert_array_equal(only.values[0], change.values[0][rows.ravel()])
    labels = paired.labels.copy()
    labels[rows[0, 0]] += 1
    with pytest.raises(DataError, match="one label without"):
        find_pairs(replace(paired, labels=labels))
    plain = [TensorDataset(p.images, torch.from_numpy(p.labels), torch.from_numpy(p.has_artifact)) for p in parts]
    numbered = collect_activations(model, PAIRED_CASE.layer, ConcatDataset(plain))  # each an image of its own
    with pytest.raises(DataError, match=r"the sets must yield ids \(hansfree\.Example\)"):
        find_pairs(numbered)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def collect_small(folder: Path, data: Any, **options: Any) -> Any:
    return collect_activations(small_net(), LAYER, data, folder=folder, **{"batch_size": 64, **options})


def test_the_same_is_not_collected_twice(tmp_path: Path) -> None:
    first = collect_small(tmp_path, Pictures(300))
    before, data = contents(tmp_path), Pictures(300)
    second = collect_small(tmp_path, data)
    assert data.reads == {0: 1}  # to check the cut
    assert contents(tmp_path) == before
    assert first.folder == second.folder
    assert np.array_equal(first.pooled, second.pooled)


def test_whatever_differs_has_a_folder_of_its_own(tmp_path: Path) -> None:
    def folder(model: nn.Module, layer: str = LAYER, data: Any = None, **options: Any) -> Path:
        given = Pictures(8) if data is None else data
        return collect_activations(model, layer, given, folder=tmp_path, **options).folder  # type: ignore[return-value]

    model, statistics = small_net(), small_net()
    statistics.get_buffer("features.4.running_var")[0] += 1e-6
    for wrong in ({"precision": "float15"}, {"pooling": "man"}, {"device": "gpu"}):
        with pytest.raises(OptionError, match="Did you mean"):
            folder(model, **wrong)
    found = [folder(model), folder(statistics), folder(model, "features.3"), folder(model, data=Pictures(9))]
    differing: Any = [{"data_key": "other"}, {"data_key": "other", "data": Pictures(9)}]
    found += [folder(model, **options) for options in (*differing, {"pooling": "mean"}, {"precision": "float16"})]
    assert len(set(found)) == len(found) == 8
    assert folder(model) == found[0]


def test_data_that_do_not_say_what_they_are_need_a_key(tmp_path: Path) -> None:
    data = Pictures(4)
    del data.fingerprint
    with pytest.raises(OptionError, match=r"Pictures does not say which data it holds.*data_key"):
        collect_small(tmp_path, data)
    assert not data.reads
    assert not list(tmp_path.iterdir())
    assert collect_small(tmp_path, data, data_key="mine").folder is not None


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    features_of(collect_small(folder, Pictures(300)))
    return folder


def features_of(activations: Activations) -> Any:
    spec = FeatureSpec(directions=np.eye(16, dtype=np.float32)[:1])
    return compute_features(cut_at(small_net(), activations), activations, spec)


def replace_file(path: Path, content: bytes) -> None:
    """Write a new file in its place: what this process has read of the old one must not count."""
    path.with_suffix(".new").write_bytes(content)
    path.with_suffix(".new").replace(path)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-9] ^= 4
    replace_file(path, bytes(content))


@pytest.mark.parametrize(
    "damage",
    [flip, lambda path: replace_file(path, path.read_bytes()[:-20]), Path.unlink],
    ids=["flip", "truncate", "delete"],
)
@pytest.mark.parametrize(
    ("damaged", "collected"),
    [
        ("shard-00000256-*.safetensors", range(256, 300)),
        ("shard-00000256-*.json", range(256, 300)),
        ("facts/labels.npy", ()),
        ("features-*/001.npy", ()),
        ("features-*/checksums.json", ()),
    ],
)
def test_what_is_damaged_is_computed_again(
    damage: Any, damaged: str, collected: Any, undamaged: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = contents(undamaged)
    shutil.copytree(undamaged, tmp_path, dirs_exist_ok=True)
    (path,) = tmp_path.rglob(damaged)
    damage(path)
    data = Pictures(300)
    with caplog.at_level(logging.WARNING):
        features_of(collect_small(tmp_path, data))
    assert ("is damaged or missing" in caplog.text) == (path.suffix != ".json" or damage is not Path.unlink)
    assert data.reads == Counter([0, *collected])
    assert contents(tmp_path) == expected
    caplog.clear()
    features_of(collect_small(tmp_path, data))
    assert not caplog.records


def test_another_batch_size_does_not_disturb_activations_in_use(tmp_path: Path) -> None:
    first = collect_small(tmp_path, Pictures(700))
    expected = torch.cat([batch for (batch,) in first.stream()]).clone()
    second = collect_small(tmp_path, DataLoader(Pictures(700), batch_size=100))
    assert torch.equal(torch.cat([batch for (batch,) in first.stream()]), expected)
    assert torch.allclose(torch.cat([batch for (batch,) in second.stream()]), expected, atol=1e-5)


def test_resume_after_a_kill(tmp_path: Path) -> None:
    folder, images = tmp_path / "killed", 600
    program = (
        "import sys\nfrom pathlib import Path\nfrom hansfree.activations import collect_activations\n"
        "from tests.activations.samples import Pictures, small_net\n"
        f"data, folder = Pictures({images}, stall_at=400), Path(sys.argv[1])\n"
        f"collect_activations(small_net(), {LAYER!r}, data, folder=folder, batch_size=32)"
    )
    command = [sys.executable, "-c", program, str(folder)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not list(folder.rglob("shard-00000000-*.json")):  # its checksum comes last
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert len(list(folder.rglob("shard*.safetensors"))) == 1  # it stalls within the second

    data = Pictures(images)
    resumed = collect_small(folder, data, batch_size=32)
    assert data.reads == Counter([0, *range(256, images)])
    whole = collect_small(tmp_path / "whole", Pictures(images), batch_size=32)
    assert resumed.folder is not None
    assert whole.folder is not None
    assert resumed.folder.name == whole.folder.name  # the key is the same in every process
    assert contents(resumed.folder) == contents(whole.folder)


SHAPES = st.integers(2, 4).flatmap(lambda ndim: st.tuples(*[st.integers(1, 4)] * ndim))
ACTIVATIONS = SHAPES.flatmap(
    lambda shape: hnp.arrays(np.float64, shape, elements=st.floats(-10, 10, allow_subnormal=False))
).map(torch.from_numpy)


def vectors(a: Tensor) -> list[list[Tensor]]:
    """Return the channel vector at each position of each image, in order: the definition, written out."""
    if a.ndim == 2:
        return [[image] for image in a]
    if a.ndim == 3:
        return [list(image) for image in a]
    return [[image[:, y, x] for y, x in itertools.product(*map(range, image.shape[1:]))] for image in a]


@given(ACTIVATIONS, st.integers(0, 99))
@settings(max_examples=60)
def test_functions_of_positions(a: Tensor, seed: int) -> None:
    each = vectors(a)
    channels = len(each[0][0])
    assert count_positions(tuple(a.shape)) == len(each[0])
    assert sorted([0, channel_axis(a.ndim), *position_axes(a.ndim)]) == list(range(a.ndim))
    rng = np.random.default_rng(seed)
    direction, added = (
        torch.from_numpy(rng.normal(size=channels)),
        torch.from_numpy(rng.normal(size=(len(a), channels))),
    )
    signs, again = (random_signs(a, torch.Generator().manual_seed(seed)) for _ in range(2))
    assert torch.equal(signs, again)
    assert (signs.dtype, signs.numel()) == (a.dtype, len(a) * len(each[0]))
    assert signs.abs().eq(1).all()
    shifted = vectors(a + at_every_position(added, a.ndim))
    for image, own in enumerate(each):
        stack = torch.stack(own)
        assert torch.equal(pool(a, "max")[image], stack.amax(0))
        assert torch.allclose(pool(a, "mean")[image], stack.mean(0))
        assert torch.allclose(sum_positions(a)[image], stack.sum(0))
        assert torch.allclose(along(a, direction)[image], stack @ direction)
        assert torch.equal(torch.stack(shifted[image]), stack + added[image])


@pytest.mark.parametrize("ndim", [0, 1, 5])
def test_other_shapes_are_refused(ndim: int) -> None:
    with pytest.raises(DataError, match=f"this one has {ndim} axes"):
        pool(torch.zeros([2] * ndim), "max")
