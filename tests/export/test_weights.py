"""The exported file fits the user's own class and gives the evaluated model's logits, or is not there."""

from __future__ import annotations

import ast
import copy
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from hansfree.corrections import LatentCorrection, Projection
from hansfree.corrections.training import FineTuning
from hansfree.errors import HansfreeError, OptionError, SplitError
from hansfree.export import export_model, export_onnx, load_corrected, weights
from hansfree.models import DemoNet, adapt, build_model, load_model
from hansfree.models.surgery import insert_after, split
from tests.corrections.examples import EVERYWHERE, Residual, TinyImages, collect, fit_cav
from tests.export.examples import CHANNELS, CLASSES, corrected, images, projection, sequential
from tests.models.zoo import hugging_face_folder

PLAIN = {  # by kind of folding
    "layer": (sequential(nn.Flatten(), nn.Linear(192, CHANNELS), nn.ReLU(), nn.Linear(CHANNELS, CLASSES)), "1"),
    "next": (
        sequential(nn.Conv2d(3, CHANNELS, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, CLASSES)),
        "0",
    ),
}


def demo_net() -> DemoNet:
    model = build_model("demo", classes=CLASSES).eval()
    assert isinstance(model, DemoNet)
    return model


def metadata(path: Path) -> dict[str, str]:
    with safe_open(path, framework="pt") as file:
        return dict(file.metadata())


def same(one: nn.Module, other: nn.Module, given: Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(one.eval()(given), other.eval()(given), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        *((name, method) for name in EVERYWHERE for method in ("rr-clarc", "p-clarc")),
        *((name, m) for name in ("mlp", "graph node") for m in ("p-clarc-one-sided", "r-clarc", "leace", "dfr")),
    ],
)
def test_what_a_correction_made_of_any_model_can_be_exported(name: str, method: str, tmp_path: Path) -> None:
    """The projection at a module comes with a loader that does without hansfree."""
    case, data, loader = EVERYWHERE[name], TinyImages(40), tmp_path / "load_corrected.py"
    loader.write_text("of an earlier export")
    model = case.model()
    acts = collect(case, model, data)
    tuning = FineTuning(epochs=1)
    fixed = LatentCorrection.named(method).for_run(cav=fit_cav(acts), images=data, tuning=tuning).correct(model, acts)
    done = export_model(fixed, tmp_path / "m.safetensors", original=model, example=data.images[:8], method=method)
    assert done.folding.kind == ("plain" if method in ("rr-clarc", "dfr") else "module")
    assert set(load_file(done.weights)) == {*model.state_dict(), *done.added}
    assert 0 < len(done.changed) < len(model.state_dict())
    same(load_corrected(case.model(), done.weights), fixed, data.images[8:])
    assert (done.loader is not None) == loader.exists() == (bool(done.added) and name != "graph node")
    if done.loader is not None:
        same(runpy.run_path(str(loader))["load_corrected"](case.model()), fixed, data.images[8:])


def test_the_loader_of_a_projection_imports_no_hansfree(tmp_path: Path) -> None:
    original = demo_net()
    model = corrected(original, "features.10", channels=128)
    done = export_model(model, tmp_path / "it's.safetensors", original=original, example=images(size=32))
    assert done.folding.kind == "module"
    assert done.added == ("hansfree_projection.directions", "hansfree_projection.target")
    assert sorted(set(load_file(done.weights)) - set(done.added)) == sorted(original.state_dict())
    assert done.loader == tmp_path / "load_corrected.py"
    nodes = list(ast.walk(ast.parse(done.loader.read_text())))
    used = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    used |= {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    assert used == {"pathlib", "torch", "safetensors.torch"}
    loaded = runpy.run_path(str(done.loader))["load_corrected"](build_model("demo", classes=CLASSES, seed=9))
    assert list(loaded.state_dict()) == list(model.state_dict())  # saved again, it cannot pass for the original


def test_an_adapted_model_is_exported_for_the_users_own(tmp_path: Path) -> None:
    own = sequential(
        nn.Conv2d(3, CHANNELS, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, 1)
    )
    original = adapt(own, images(), output="binary")
    for layer, pooling, kind in (("layers.0", "max", "module"), ("layers.1", "mean", "next")):
        model = insert_after(original, layer, projection(pooling=pooling)).eval()
        done = export_model(model, tmp_path / "m.safetensors", original=original, example=images())
        assert done.folding.kind == kind
        loaded = load_corrected(own, done.weights)(images(seed=1))  # one logit, as the user's class has it
        torch.testing.assert_close(loaded, model(images(seed=1))[:, 1:], rtol=1e-5, atol=1e-5)


def test_an_export_that_says_something_else_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, layer = PLAIN["next"]
    model = corrected(original, layer)
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"before")
    monkeypatch.setattr(weights, "load_corrected", lambda model, path: copy.deepcopy(original))
    with pytest.raises(SplitError, match=r"differ by up to .* on 4 images\. Nothing was written"):
        export_model(model, path, original=original, example=images())
    assert path.read_bytes() == b"before"
    assert [file.name for file in tmp_path.iterdir()] == ["m.safetensors"]


def test_loading_says_what_does_not_fit(tmp_path: Path) -> None:
    original, layer = PLAIN["next"]
    path = tmp_path / "run.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in corrected(original, layer).state_dict().items()}, path)
    with pytest.raises(OptionError, match="holds a projection and does not say where"):
        load_corrected(original, path)
    at: Any = {"layer": f"layers.{layer}", "pooling": "max"}
    same(load_corrected(original, path, **at), corrected(original, layer), images())
    with pytest.raises(OptionError, match=r"pooling is 'maxx'\. Did you mean 'max'"):
        load_corrected(original, path, **{**at, "pooling": "maxx"})
    with pytest.raises(OptionError, match="is not a readable safetensors file"):
        load_corrected(original, tmp_path / "missing.safetensors")
    path.write_bytes(b"not tensors")
    with pytest.raises(OptionError, match="is not a readable safetensors file"):
        load_corrected(original, path)
    save_file({"layers.0.weight": torch.zeros(1)}, path)
    with pytest.raises(OptionError, match="does not fit"):
        load_corrected(original, path)


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    original = Residual().eval()
    model = corrected(original, "branch")
    files = {
        export_model(model, tmp_path / f"{n}.safetensors", original=original, example=images()).weights.read_bytes()
        for n in range(3)  # safetensors itself shuffles the metadata
    }
    assert len(files) == 1


onnxruntime = pytest.importorskip("onnxruntime")


pytest.importorskip("onnxscript")


def run_onnx(path: Path, given: Tensor) -> np.ndarray:
    (logits,) = onnxruntime.InferenceSession(str(path)).run(None, {"images": given.numpy()})
    return np.asarray(logits)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["channels last", "hugging face"])
def test_models_of_any_kind_become_onnx_and_can_be_compiled(name: str, tmp_path: Path) -> None:
    original: nn.Module
    if name == "hugging face":
        original, layer = load_model(f"hf:{hugging_face_folder(tmp_path)}"), "resnet.encoder.stages.1.layers.0.add"
    else:
        original, layer = EVERYWHERE[name].model(), EVERYWHERE[name].layer
    original = adapt(original, images(3, 32))
    cut = split(original, layer, example=images(3, 32))
    channels = cut.trunk(images(1, 32))[0].shape[1]
    model = insert_after(original, layer, projection(channels), order=cut.order)
    (tmp_path / "onnx").mkdir()
    assert 0 <= export_onnx(model.train(), tmp_path / "onnx" / "m.onnx", images(3, 32)) < 1e-4
    assert model.training
    assert [path.name for path in (tmp_path / "onnx").iterdir()] == ["m.onnx"]  # no data beside it
    model.eval()
    done = export_model(model, tmp_path / "m.safetensors", original=original, example=images(3, 32))
    compiled = torch.compile(load_corrected(original, done.weights), backend="aot_eager")
    for count in (1, 5):
        given = images(count, 32, seed=5)
        with torch.no_grad():
            expected = model(given)
            assert not torch.allclose(expected, original(given))
        np.testing.assert_allclose(run_onnx(tmp_path / "onnx" / "m.onnx", given), expected.numpy(), atol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(compiled(given), expected, rtol=1e-4, atol=1e-4)


def test_a_model_that_cannot_be_exported_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_model: nn.Module, _images: object, path: str, **_: object) -> None:
        Path(path).write_bytes(b"half")
        raise RuntimeError("The export failed.") from ValueError("a size depends on the data.\nMore about it")

    monkeypatch.setattr(torch.onnx, "export", fail)
    words = r"^Residual cannot be exported to ONNX: a size depends on the data\.$"
    with pytest.raises(SplitError, match=words):
        export_onnx(Residual(), tmp_path / "m.onnx", images())
    assert not list(tmp_path.iterdir())


def oblique(pooling: Any) -> Projection:
    """Return an erasure: scores are taken along other vectors than it shifts along."""
    rng = np.random.default_rng(0)
    directions, readout = rng.normal(size=(2, 2, CHANNELS))
    readout = np.linalg.solve(readout @ directions.T, readout)  # of each other's length, so that twice is once
    return Projection(directions, rng.normal(size=2), pooling=pooling, readout=readout)


@pytest.mark.parametrize("is_erasure", [False, True])
@pytest.mark.parametrize("kind", PLAIN)
def test_folded_weights_load_strictly_into_the_users_own_class(kind: str, is_erasure: bool, tmp_path: Path) -> None:
    original, layer = PLAIN[kind]
    inserted = oblique("mean") if is_erasure else projection(pooling="mean")
    model = insert_after(original, f"layers.{layer}", inserted).eval()
    done = export_model(model, tmp_path / "m.safetensors", original=original, example=images(), method="p-clarc")
    assert (done.folding.kind, done.added, done.loader, done.images) == (kind, (), None, 4)
    if not is_erasure:
        assert 0 <= done.difference < 2e-6 * float(model(images()).detach().abs().max())
    state, own = load_file(done.weights), original.state_dict()
    assert {n: t.shape for n, t in state.items()} == {n: t.shape for n, t in own.items()}
    fresh = copy.deepcopy(original)
    fresh.load_state_dict(state, strict=True)
    same(fresh, model, images(seed=3))
    assert set(done.changed) == {name for name, old in own.items() if not torch.equal(old, state[name])}
    assert len(done.changed) == 2
    assert metadata(done.weights)["method"] == "p-clarc"
    assert metadata(done.weights)["original"] == done.original


def not_finite() -> nn.Module:
    broken = copy.deepcopy(PLAIN["layer"][0])
    with torch.no_grad():
        broken.get_parameter("layers.1.bias")[0] = torch.nan
    return broken


@pytest.mark.parametrize(
    ("model", "name", "error", "words"),
    [
        (Residual().eval(), "m.safetensors", OptionError, r"original's class: 'layers\.1\.weight' is not there"),
        (
            sequential(nn.Flatten(), nn.Linear(192, 9), nn.ReLU(), nn.Linear(9, CLASSES)),
            "m.safetensors",
            OptionError,
            r"'layers\.1\.weight' is of shape \(9, 192\), and in the original of shape",
        ),
        (not_finite(), "m.safetensors", HansfreeError, r"not finite.*'layers\.1\.bias'"),
        (PLAIN["layer"][0], "m.pt", OptionError, r"ends in \.safetensors, not 'm\.pt'"),
    ],
)
def test_what_cannot_be_exported_is_refused(
    model: nn.Module, name: str, error: type[Exception], words: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=words):
        export_model(model, tmp_path / name, original=PLAIN["layer"][0], example=images())
    assert not list(tmp_path.iterdir())


def test_onnx_options_are_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match=r"ends in \.onnx, not 'm\.pt'"):
        export_onnx(Residual(), tmp_path / "m.pt", images())
    with pytest.raises(OptionError, match="at least 2 example images"):
        export_onnx(Residual(), tmp_path / "m.onnx", images(1))
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(OptionError, match=r"pip install -e '\.\[onnx\]'"):
        export_onnx(Residual(), tmp_path / "m.onnx", images())
