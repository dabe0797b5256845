"""Embedded images in a folder, with a table without artifact labels, and a model that relies on the artifact."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from fastapi.testclient import TestClient
from PIL import Image
from safetensors.torch import save_file

from hansfree.corrections.training import Pretraining, pretrain
from hansfree.data.artifacts import Artifact
from hansfree.data.datasets import InMemory
from hansfree.data.insertion import WithArtifact
from hansfree.data.lesions import SyntheticLesions
from hansfree.discovery.label.server import create_app
from hansfree.discovery.label.session import Session, open_labelling
from hansfree.models import build_model
from hansfree.pipeline.config import read_run_file

PORT = 8765
TOKEN = "a-token-for-tests"
MODEL = "from hansfree.models import build_model\n\ndef build():\n    return build_model('demo', classes=4, seed=0)\n"


@dataclass(frozen=True)
class World:
    """A run file, and the true artifact labels."""

    file: Path
    has_artifact: np.ndarray

    @property
    def table(self) -> Path:
        """The table of labels."""
        return self.file.parent / "out-label" / "artifacts.csv"


def train_weights(path: Path, artifact: str, *, size: int = 48) -> Path:
    """Train a small model on poisoned lesions, none of which is shown on the page: half of one class has it."""
    source = SyntheticLesions(1200, size=size, start=20_000)
    data = InMemory(WithArtifact(source, Artifact.named(artifact)(), share=0.5, only_class=0, seed=1))
    model = build_model("demo", classes=4, seed=0)
    pretrain(model, data, Pretraining(epochs=3, seed=0))
    save_file(model.state_dict(), path)
    return path


def make_world(
    folder: Path, n: int, *, artifact: str = "timestamp", size: int = 48, weights: Path | None = None, **data: Any
) -> World:
    """Write lesions, one in twenty with the artifact, all in one class; a table without that column; a run file."""
    images = WithArtifact(SyntheticLesions(n, size=size), Artifact.named(artifact)(), share=0.2, only_class=0)
    pictures = folder / "pictures"
    pictures.mkdir(parents=True)
    with (folder / "labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "label", "site", "group"])
        for row in range(n):
            Image.fromarray(images.pixels(row)[0]).save(pictures / f"{row:05}.png", compress_level=1)
            writer.writerow([f"{row:05}.png", images.class_names[images.labels[row]], f"site {row % 3}", f"p{row}"])
    (folder / "model.py").write_text(MODEL)
    model = {"source": f"{folder / 'model.py'}:build", "layer": "features.10"}
    if weights is not None:
        model["weights"] = str(weights)
    names = list(images.class_names)
    run = {
        "model": model,
        "data": {"root": "pictures", "table": "labels.csv", "classes": names, "size": size, **data},
        "out": "out",
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(run))
    return World(folder / "run.yaml", images.has_artifact)


@contextmanager
def opened(world: World) -> Iterator[Session]:
    """Open the page's session, as `hansfree label` does."""
    run = read_run_file(world.file)
    with open_labelling(run, file=world.file) as data, closing(Session(data)) as session:
        yield session


@contextmanager
def page(session: Session) -> Iterator[TestClient]:
    """Return a client with the headers of the page."""
    app = create_app(session, token=TOKEN, port=PORT)
    host = f"http://127.0.0.1:{PORT}"
    with TestClient(app, base_url=f"{host}/{TOKEN}/", headers={"origin": host}) as client:
        yield client


def label_all(client: TestClient, truth: np.ndarray, *, labels: int) -> None:
    """Label the images that the page shows, in its order, one by one."""
    screen = client.get("api/screen").json()
    while labels:
        for choice in screen[:labels]:
            answer = {"images": [choice["image"]], "has_artifact": bool(truth[choice["image"]])}
            assert client.post("api/labels", json=answer).status_code == 200
            labels -= 1
        screen = client.post("api/screen/next").json()
