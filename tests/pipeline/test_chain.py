"""From a run file to corrected weights, report and card, on models that this repository does not know."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from typer.testing import CliRunner

from hansfree.cli import app
from hansfree.data.examples import Normalize
from hansfree.export import load_corrected
from hansfree.models import find_logits, load_model
from tests.models.zoo import hugging_face_folder

METHODS = ("vanilla", "p-clarc", "a-clarc", "rr-clarc", "rrr")
CLASSES = ("benign", "malignant")
SIZE = 32
HALF = Normalize((0.5,) * 3, (0.5,) * 3)

# The user's own file: the libraries' classes, as small as they go.
OWN_MODELS = """
import timm
from torchvision.models.swin_transformer import SwinTransformer


def vit(num_classes=2):
    return timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, num_classes=num_classes)


def convnext(num_classes=2):
    return timm.create_model("convnext_atto", depths=(1, 1, 1, 1), num_classes=num_classes)


def swin(num_classes=2):
    return SwinTransformer(
        patch_size=[4, 4], embed_dim=16, depths=[1, 1], num_heads=[1, 2], window_size=[4, 4], num_classes=num_classes
    )
"""
# name -> what the report says about its heatmaps
MODELS = {
    "vit": "Gradient x input: red",
    "convnext": "Gradient x input: red",
    "swin": "Gradient x input: red",
    "resnet": "LRP (epsilon, z+, flat): red",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: a file of models, a Hugging Face folder, trained weights, pictures and their table."""
    home = tmp_path_factory.mktemp("home")
    (home / "models.py").write_text(OWN_MODELS)
    hugging_face_folder(home / "resnet", labels=len(CLASSES))
    (home / "pictures").mkdir()
    lines, images, labels = ["image,label,split,artifact"], [], []
    rng = np.random.default_rng(0)
    for number, (split, label, has_artifact) in enumerate(listed()):
        pixels = rng.integers(0, 120, (SIZE, SIZE, 3), dtype=np.uint8)
        pixels[8:24, 8:24, label] += 60
        if has_artifact:
            pixels[:8, :8] = 255
        Image.fromarray(pixels).save(home / "pictures" / f"{number:03}.png")
        lines.append(f"{number:03}.png,{CLASSES[label]},{split},{has_artifact}")
        if split == "train":
            images.append(pixels)
            labels.append(label)
    (home / "natural.csv").write_text("\n".join(lines) + "\n")
    (home / "inserted.csv").write_text("\n".join(line.rpartition(",")[0] for line in lines) + "\n")
    for model in MODELS:
        own = load_model(source_of(home, model), classes=len(CLASSES))
        train(own, HALF(np.stack(images)), torch.tensor(labels))
        save_file(own.state_dict(), home / f"{model}.safetensors")
    return home


def listed() -> list[tuple[str, int, int]]:
    """Return part, class and artifact bit of every picture: as few as a score may be computed from."""
    held_out = [(label, 0) for label in (0, 1) for _ in range(25)] + [(1, 1)] * 20 + [(0, 1)] * 5
    train = [(0, 0), (1, 0), (0, 0), (1, 1)] * 8
    return [(split, *one) for split in ("train", "val", "test") for one in (train if split == "train" else held_out)]


def train(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    """A few steps, so that the model knows its classes."""
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(12):
        output = model(images)
        loss = cross_entropy(getattr(output, "logits", output), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def source_of(home: Path, model: str) -> str:
    return f"hf:{home / model}" if model == "resnet" else f"{home / 'models.py'}:{model}"


def write_run(home: Path, model: str, artifact: str) -> Path:
    content = {
        "out": f"{model}-{artifact}",
        "model": {"source": source_of(home, model), "weights": f"{model}.safetensors"},
        "data": {
            "root": "pictures",
            "table": f"{artifact}.csv",
            "classes": list(CLASSES),
            "size": SIZE,
            "resize": "squash",
            "mean": list(HALF.mean),
            "std": list(HALF.std),
        },
        "artifact": {"biased_class": "malignant"} | ({} if artifact == "natural" else {"insert": "timestamp"}),
        "correction": {
            "methods": list(METHODS),
            "epochs": 1,
            "learning_rate": 1e-3,
            "budget": 1.0,
            "strengths": {"rr-clarc": [1], "rrr": [1]},
        },
    }
    file = home / f"{content['out']}.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def hansfree(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "300"})
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def fresh(home: Path, model: str) -> nn.Module:
    """Return the user's own class with other weights than the run had."""
    own = load_model(source_of(home, model), classes=len(CLASSES))
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.add_(0.1)
    return own


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "artifact"),
    [("vit", "natural"), ("convnext", "inserted"), ("swin", "natural"), ("resnet", "inserted")],
)
def test_from_run_file_to_corrected_weights(home: Path, model: str, artifact: str) -> None:
    file = write_run(home, model, artifact)
    hansfree("run", file)
    out = file.with_suffix("")

    with (out / "results.csv").open(newline="") as table:
        rows = list(csv.DictReader(table))
    tested = {row["method"] for row in rows if row["split"] == "test" and row["chosen"] == "1"}
    assert {"original", *METHODS} <= tested
    report = (out / "report.html").read_text()
    assert MODELS[model] in re.sub(r"<[^>]*>", "", report)

    before = contents(out)
    hansfree("run", file)
    assert contents(out) == before  # with the log: no stage was done again

    shown = HALF(np.load(out / "heatmaps.npz")["images"])
    for method in METHODS:
        evaluated = np.load(out / "stages" / f"{method}.npz")["shown_logits"]
        hansfree("export", out, method, "--out", out / "delivered" / method)
        weights = out / "delivered" / method / "model.safetensors"
        assert "these agree with what the run evaluated" in (weights.parent / "MODEL_CARD.md").read_text()
        own = fresh(home, model)
        if method == "p-clarc":
            own = load_corrected(own, weights)
        else:
            own.load_state_dict(load_file(weights), strict=True)
        np.testing.assert_allclose(find_logits(own, shown).numpy(), evaluated, atol=1e-4)
