"""A user in small: 32-pixel pictures of two classes, a model that learned a shortcut in them, and a run file."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from hansfree import api
from hansfree.api import Result
from hansfree.pipeline import PreparedRun, prepare_run, read_run_file

SIZE = 32
CLASSES = ("dark", "bright")
ENOUGH = 26  # images of a group, one more than is needed to know its accuracy
# Images by (part, class, artifact): the artifact is a sign of `dark`, with counter-examples held out.
COUNTS = {
    ("train", 0, 0): 14, ("train", 0, 1): 14, ("train", 1, 0): 26, ("train", 1, 1): 2,
    ("val", 0, 0): ENOUGH, ("val", 0, 1): ENOUGH, ("val", 1, 0): ENOUGH, ("val", 1, 1): ENOUGH,
    ("test", 0, 0): ENOUGH, ("test", 0, 1): ENOUGH, ("test", 1, 0): ENOUGH, ("test", 1, 1): ENOUGH,
}  # fmt: skip
SECONDS_OF_WORK = {"epochs": 2, "methods": ["vanilla", "p-clarc", "rr-clarc"], "strengths": {"rr-clarc": [0.1, 1]}}

NET = """
from torch import nn

def build(num_classes=2, channels=3):
    return nn.Sequential(
        nn.Conv2d(channels, 6, 3, stride=2), nn.ReLU(), nn.Conv2d(6, 8, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, num_classes),
    )

def binary():
    return build(1)

def grey():
    return build(2, channels=1)
"""


def draw(label: int, has_artifact: bool, rng: np.random.Generator) -> np.ndarray:
    """Return a noisy picture, dark or bright, with a black and white corner where it carries the artifact."""
    brightness = rng.normal(110 + 24 * label, 12)
    image = np.clip(rng.normal(brightness, 45, size=(SIZE, SIZE, 3)), 0, 255).astype(np.uint8)
    if has_artifact:
        image[2:10, 2:10] = 255 * (np.indices((8, 8)).sum(axis=0) // 2 % 2)[..., None]
    return image


def make_images(root: Path, counts: Mapping[tuple[str, int, int], int] = COUNTS) -> Tensor:
    """Write pictures and ``labels.csv``; return all as the model sees them."""
    rng = np.random.default_rng(0)
    rows, seen = [], []
    (root / "images").mkdir(parents=True)
    for (part, label, artifact), count in counts.items():
        for i in range(count):
            name = f"images/{part}-{label}-{artifact}-{i}.png"
            image = draw(label, bool(artifact), rng)
            Image.fromarray(image).save(root / name)
            rows.append((name, CLASSES[label], artifact, part))
            seen.append(image)
    write_table(root / "labels.csv", rows)
    return torch.from_numpy(np.stack(seen)).permute(0, 3, 1, 2).float() / 127.5 - 1


def write_table(
    path: Path, rows: list[tuple[object, ...]], header: tuple[str, ...] = ("image", "label", "artifact", "split")
) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def read_results(run: Path) -> list[dict[str, str]]:
    """Return the rows of ``results.csv``."""
    with (run / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def read_table(path: Path) -> list[tuple[str, ...]]:
    with path.open(newline="") as file:
        return [tuple(row) for row in csv.reader(file)][1:]


def build(num_classes: int = 2, channels: int = 3) -> nn.Module:
    names: dict[str, Any] = {}
    exec(NET, names)
    model = names["build"](num_classes, channels)
    assert isinstance(model, nn.Module)
    return model


def train(images: Tensor, labels: Tensor, outputs: int) -> nn.Module:
    """Return a model that learned the training images, and with them the shortcut."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build(outputs)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(60):
        logits = model(images)
        if outputs == 1:
            loss = nn.functional.binary_cross_entropy_with_logits(logits[:, 0], labels.float())
        else:
            loss = nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def make_user(root: Path, counts: Mapping[tuple[str, int, int], int] = COUNTS) -> Path:
    """Write images, table, ``net.py``, the weights of a two-logit and a one-logit model, and a patch; return root."""
    images = make_images(root, counts)
    n = sum(count for (part, _, _), count in counts.items() if part == "train")
    labels = torch.tensor([label for (_, label, _), count in counts.items() for _ in range(count)])
    for outputs, name in ((2, "two.safetensors"), (1, "one.safetensors")):
        save_file(train(images[:n], labels[:n], outputs).state_dict(), root / name)
    (root / "net.py").write_text(NET)
    patch = np.full((8, 8, 4), 255, dtype=np.uint8)
    patch[..., :3] = 255 * (np.indices((8, 8)).sum(axis=0) // 2 % 2)[..., None]
    Image.fromarray(patch, "RGBA").save(root / "sticker.png")
    return root


def run_content(**sections: Any) -> dict[str, Any]:
    """Return a run file's content; sections are added to, top-level keys replaced."""
    content: dict[str, Any] = {
        "model": {"source": "net.py:build", "weights": "two.safetensors"},
        "data": {
            "root": ".", "table": "labels.csv", "classes": list(CLASSES), "size": SIZE,
            "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5],
        },
        "artifact": {"biased_class": "dark"},
        "correction": dict(SECONDS_OF_WORK),
        "out": "run",
    }  # fmt: skip
    for name, value in sections.items():
        content[name] = {**content.get(name, {}), **value} if isinstance(value, dict) else value
    return content


def write_run(path: Path, **sections: Any) -> Path:
    path.write_text(yaml.safe_dump(run_content(**sections)))
    return path


def prepare(path: Path, **sections: Any) -> PreparedRun:
    """Write a run file and prepare its run."""
    return prepare_run(read_run_file(write_run(path, **sections)))


def run_unreported(path: Path, **sections: Any) -> Result:
    """Run without a report, as fixtures of a module do: figures take most of a tiny run's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hansfree.api.write_report", lambda out: out / "report.html")
        return api.run(prepare(path, **sections))


def half_written(folder: Path) -> Iterator[Path]:
    """Yield what a kill left behind under a name of its own; hidden files do not count."""
    from safetensors import safe_open

    for path in sorted(folder.rglob("*")):
        if any(part.startswith(".") for part in path.relative_to(folder).parts) or not path.is_file():
            continue
        try:
            if path.suffix == ".json":
                yaml.safe_load(path.read_text())
            elif path.suffix == ".safetensors":
                with safe_open(path, framework="pt") as file:
                    file.keys()
            elif path.suffix in (".npy", ".npz"):
                np.load(path, mmap_mode="r" if path.suffix == ".npy" else None)
        except Exception:
            yield path
