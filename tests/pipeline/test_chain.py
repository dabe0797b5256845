"""From a run file to corrected weights, report and card, on models that this repository does not know."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from hansfree.corrections.training import Pretraining, pretrain
from hansfree.export import load_corrected
from hansfree.models import adapt, find_logits, load_model
from hansfree.pipeline.checks import prepare_run
from hansfree.pipeline.config import read_run_file
from tests.conftest import Call
from tests.models.zoo import hugging_face_folder
from tests.pipeline.user import read_results, write_run

METHODS = ("vanilla", "p-clarc", "a-clarc", "rr-clarc", "rrr")
OWN = """
import timm

def vit(num_classes=2):
    return timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, num_classes=num_classes)
"""
CORRECTION = {
    "methods": METHODS, "epochs": 1, "learning_rate": 1e-3, "budget": 1.0, "strengths": {"rr-clarc": [1], "rrr": [1]},
}  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "artifact", "heatmaps"),
    [
        ("models.py:vit", {}, "Gradient x input: red"),
        ("hf:resnet", {"insert": "timestamp"}, "LRP (epsilon, z+, flat): red"),
    ],
)
def test_from_run_file_to_corrected_weights(
    user: Path, call: Call, source: str, artifact: dict[str, str], heatmaps: str
) -> None:
    (user / "models.py").write_text(OWN)
    hugging_face_folder(user / "resnet", labels=2)
    train = prepare_run(read_run_file(write_run(user / "run.yaml"))).setting.data.train
    found = source.replace("models.py", f"{user}/models.py").replace("hf:", f"hf:{user}/")
    own = load_model(found, classes=2)
    pretrain(adapt(own, train.batch([0]).image), train, Pretraining(epochs=3, learning_rate=2e-3, batch_size=8))
    save_file(own.state_dict(), user / "own.safetensors")

    model, out = {"source": source, "weights": "own.safetensors"}, user / "run"
    file = write_run(user / "run.yaml", model=model, artifact=artifact, correction=CORRECTION)
    assert call("run", file)[0] == 0
    tested = {row["method"] for row in read_results(out) if row["split"] == "test" and row["chosen"] == "1"}
    assert {"original", *METHODS} <= tested
    assert heatmaps in re.sub(r"<[^>]*>", "", (out / "report.html").read_text())
    before = contents(out)
    assert call("run", file)[0] == 0
    assert contents(out) == before  # with the log: no stage was done again

    shown = torch.from_numpy(np.load(out / "heatmaps.npz")["images"]).movedim(-1, 1) / 127.5 - 1
    for method in METHODS:
        delivered = user / "delivered" / method
        assert call("export", out, method, "--out", delivered)[0] == 0
        assert "these agree with what the run evaluated" in (delivered / "MODEL_CARD.md").read_text()
        fresh = load_model(found, classes=2)
        with torch.no_grad():
            for parameter in fresh.parameters():
                parameter.add_(0.1)
        if method == "p-clarc":
            fresh = load_corrected(fresh, delivered / "model.safetensors")
        else:
            fresh.load_state_dict(load_file(delivered / "model.safetensors"), strict=True)
        evaluated = np.load(out / "stages" / f"{method}.npz")["shown_logits"]
        np.testing.assert_allclose(find_logits(fresh, shown).numpy(), evaluated, atol=1e-4)
