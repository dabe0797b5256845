"""A user whose small network has several shortcuts: embedded lesions of 32 pixels, written as pictures with a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image
from safetensors.torch import save_file

from hansfree.corrections.training import Pretraining, pretrain
from hansfree.data.datasets import InMemory
from hansfree.models import build_model
from tests.pipeline.studies import Joint
from tests.pipeline.user import write_run, write_table

NAMES = ("a", "b", "c", "d")  # of the classes; the timestamp leaks into the first, the LSB text into the third
NET = """
from hansfree.models import build_model

def build(num_classes):
    return build_model("demo", classes=num_classes)
"""


class Lesions(Joint):
    n_base, n_train, n_val, n_test = 1200, 400, 120, 200


def make_lesions(root: Path) -> Path:
    """Write pictures, ``labels.csv`` (the artifact is the timestamp), ``net.py`` and the trained weights."""
    data = Lesions(artifact="timestamp").data("demo")
    learned, rows = InMemory(data.learned), list[tuple[object, ...]]()
    (root / "images").mkdir(parents=True)
    for part, images in (("train", data.train), ("val", data.val_clean), ("test", data.test_clean)):
        for i in range(len(images)):
            name = f"images/{part}-{i}.png"
            Image.fromarray(images.pixels(i)[0]).save(root / name)
            rows.append((name, NAMES[images.labels[i]], int(images.has_artifact[i]), part))
    write_table(root / "labels.csv", rows)
    model = build_model("demo", classes=len(NAMES))
    pretrain(model, learned, Pretraining(epochs=5, learning_rate=3e-3))
    save_file(model.state_dict(), root / "demo.safetensors")
    (root / "net.py").write_text(NET)
    return root


def write_lesions_run(path: Path, *, out: str, **artifact: Any) -> Path:
    return write_run(
        path,
        out=out,
        model={"source": "net.py:build", "weights": "demo.safetensors"},
        data={"classes": list(NAMES), "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]},
        artifact={"biased_class": "a", "insert": "timestamp", **artifact},
        correction={
            "methods": ["p-clarc", "rr-clarc"],
            "optimizer": "adam",
            "learning_rate": 1e-3,
            "epochs": 5,
            "budget": 0.1,
            "strengths": {"rr-clarc": [1]},
        },
    )
