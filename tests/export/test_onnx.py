"""ONNX and torch.compile say what the corrected model says, the inserted projection too."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hansfree.errors import OptionError, SplitError
from hansfree.export import export_model, export_onnx, load_corrected
from hansfree.models import adapt, build_model, load_model
from hansfree.models.surgery import insert_after, split
from tests.export.examples import CLASSES, Branched, corrected, images, projection
from tests.models.zoo import hugging_face_folder, make

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def run_onnx(path: Path, given: Tensor) -> np.ndarray:
    (logits,) = onnxruntime.InferenceSession(str(path)).run(None, {"images": given.numpy()})
    return np.asarray(logits)


@pytest.mark.parametrize("at", ["module", "graph node"])
def test_onnx_gives_the_logits_for_any_number_of_images(at: str, tmp_path: Path) -> None:
    size = 32 if at == "module" else 8
    if at == "module":
        model = corrected(build_model("demo", classes=CLASSES), "features.10", channels=128)
    else:
        model = corrected(Branched(), "add", pooling="mean")
    difference = export_onnx(model.train(), tmp_path / "m.onnx", images(3, size))
    assert 0 <= difference < 1e-4
    assert model.training
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]  # no data beside it
    for count in (1, 5):
        given = images(count, size, seed=7)
        with torch.no_grad():
            expected = model.eval()(given).numpy()
        np.testing.assert_allclose(run_onnx(tmp_path / "m.onnx", given), expected, atol=1e-4)


@pytest.mark.parametrize("at", ["module", "graph node"])
def test_what_was_exported_can_be_compiled(at: str, tmp_path: Path) -> None:
    layer = "left" if at == "module" else "add"
    original = Branched().eval()
    model = corrected(original, layer)
    path = tmp_path / "m.safetensors"
    loaded = load_corrected(Branched(), export_model(model, path, original=original, example=images()).weights)
    compiled = torch.compile(loaded, backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(images(seed=1)), model(images(seed=1)), rtol=1e-5, atol=1e-5)
        assert not torch.allclose(compiled(images(seed=1)), original(images(seed=1)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit (timm)", "convnext (timm)", "swin (torchvision)", "hugging face"])
def test_other_peoples_models(name: str, tmp_path: Path) -> None:
    if name == "hugging face":
        original, layer = (
            load_model(f"hf:{hugging_face_folder(tmp_path / 'hf')}"),
            "resnet.encoder.stages.1.layers.0.add",
        )
    else:
        original, _, _, layer = make(name)
    original = adapt(original, images(3, 32))
    cut = split(original, layer, example=images(3, 32))
    channels = cut.trunk(images(1, 32))[0].shape[2 if name == "vit (timm)" else 1]
    model = insert_after(original, layer, projection(channels), order=cut.order)
    with torch.no_grad():
        expected = model(images(2, 32, seed=5))
        assert not torch.allclose(expected, original(images(2, 32, seed=5)))
    assert export_onnx(model, tmp_path / "m.onnx", images(3, 32)) < 1e-4
    np.testing.assert_allclose(run_onnx(tmp_path / "m.onnx", images(2, 32, seed=5)), expected.numpy(), atol=1e-4)
    done = export_model(model, tmp_path / "m.safetensors", original=original, example=images(3, 32))
    compiled = torch.compile(load_corrected(original, done.weights), backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(images(2, 32, seed=5)), expected, rtol=1e-4, atol=1e-4)


def test_a_model_that_cannot_be_exported_leaves_no_file(tmp_path: Path) -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(192, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x.flatten(1)) + torch.from_numpy(np.arange(float(x.sum().item() > 0) + 3))[:CLASSES].float()

    with pytest.raises(SplitError, match=r"^Fixed cannot be exported to ONNX: \S.*\.$"):
        export_onnx(Fixed(), tmp_path / "m.onnx", images())
    assert not list(tmp_path.iterdir())


def test_wrong_options_are_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match=r"ends in \.onnx, not 'm\.pt'"):
        export_onnx(Branched(), tmp_path / "m.pt", images())
    with pytest.raises(OptionError, match="at least 2 example images"):
        export_onnx(Branched(), tmp_path / "m.onnx", images(1))
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(OptionError, match=r"pip install -e '\.\[onnx\]'"):
        export_onnx(Branched(), tmp_path / "m.onnx", images())
