"""The settings of the benchmark: real images, an artifact that goes with one class, and held-out images to score by."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image, ImageDraw

from hansfree._internal.hashing import fingerprint
from hansfree.data.artifacts import LSB, Artifact, Brightness, Patch, Timestamp
from hansfree.data.examples import Example, ImageDataset, Normalize
from hansfree_paper.starts import normalisation_for

Kind = Literal["inserted", "faces", "trap"]
TRAP_ARTIFACTS = ("dark_corner", "hair", "gel_border", "gel_bubble", "ruler", "ink", "patches")


class Images(ImageDataset):
    """Images in memory, with one artifact label per image, or one per image and artifact."""

    def __init__(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        has_artifact: np.ndarray,
        ids: np.ndarray,
        *,
        class_names: tuple[str, ...],
        transform: Normalize,
    ) -> None:
        self.images, self.labels, self.has_artifact, self.ids = images, labels, has_artifact, ids
        self.class_names, self.transform = class_names, transform

    @property
    def fingerprint(self) -> str:
        """Everything that the examples depend on."""
        return f"Images({fingerprint(self.images, self.labels, self.has_artifact, self.ids)}, {self.transform!r})"

    def pixels(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the uint8 image and an empty mask: only the artifact label is known."""
        return self.images[index].copy(), np.zeros(self.images.shape[1:3], dtype=bool)

    def batch(self, indices: Sequence[int] | np.ndarray) -> Example:
        """Return many examples at once."""
        rows = np.asarray(indices, dtype=np.int64)
        return Example(
            self.transform(self.images[rows]),
            torch.from_numpy(self.labels[rows]),
            torch.from_numpy(self.has_artifact[rows]),
            torch.zeros((len(rows), *self.images.shape[1:3]), dtype=torch.bool),
            torch.from_numpy(self.ids[rows]),
        )

    def part(self, rows: np.ndarray) -> Images:
        """Return some of the images; ``rows`` are indices or truth values."""
        return self.with_labels(rows)

    def with_labels(self, rows: np.ndarray, has_artifact: np.ndarray | None = None) -> Images:
        """Return some of the images, on request with other artifact labels."""
        return Images(
            self.images[rows],
            self.labels[rows],
            (self.has_artifact if has_artifact is None else has_artifact)[rows],
            self.ids[rows],
            class_names=self.class_names,
            transform=self.transform,
        )

    def with_artifact(self, artifact: Artifact, *, seed: int) -> Images:
        """Return the same images with the artifact inserted into every one; the appearance depends on seed and id."""
        stamped = [
            artifact.stamp(image, np.random.default_rng((seed, int(key), 17)))[0]
            for image, key in zip(self.images, self.ids)
        ]
        return Images(
            np.stack(stamped),
            self.labels,
            np.ones(len(self), dtype=bool),
            self.ids,
            class_names=self.class_names,
            transform=self.transform,
        )


@dataclass(frozen=True, eq=False)
class Data:
    """What one trial of a setting trains, selects and scores on.

    ``train`` and ``val`` carry the bias and the artifact labels a user would have. ``clean`` and ``biased`` are test
    images: the same ones without and with the inserted artifact, or, where it is natural, those without and with it.
    """

    train: Images
    val: Images
    clean: Images
    biased: Images
    reference_train: Images | None
    artifact: Artifact | None = None

    @property
    def is_paired(self) -> bool:
        """Whether ``biased`` holds the images of ``clean`` with the artifact inserted."""
        return self.artifact is not None


@dataclass(frozen=True)
class Setting:
    """An architecture, images and an artifact."""

    name: str
    kind: Kind
    architecture: Literal["resnet18", "efficientnet_lite0", "vgg16_pooled"]
    artifact: str
    size: int
    epochs: int = 6

    @property
    def base_name(self) -> str:
        """Settings that agree in this share the reference model."""
        return f"{self.architecture}-{self.kind}-{self.size}"

    def load(self, root: Path, trial: int = 0) -> Data:
        """Read the images; the trial decides which images carry the artifact, or how natural images are split."""
        read = {"inserted": _inserted, "faces": _faces, "trap": _trap}[self.kind]
        return read(self, root, trial)


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("resnet18-timestamp", "inserted", "resnet18", "timestamp", 112),
        Setting("resnet18-brightness", "inserted", "resnet18", "brightness", 96),
        Setting("resnet18-patch", "inserted", "resnet18", "patch", 96),
        Setting("resnet18-glasses", "faces", "resnet18", "glasses", 96),
        Setting("efficientnet-timestamp", "inserted", "efficientnet_lite0", "timestamp", 96),
        Setting("resnet18-trap-1", "trap", "resnet18", "trap-1", 96),
        Setting("vgg16-timestamp", "inserted", "vgg16_pooled", "timestamp", 64),
        Setting("resnet18-lsb", "inserted", "resnet18", "lsb", 96),
        Setting("resnet18-collar", "faces", "resnet18", "collar", 96),
        Setting("resnet18-blond-male", "faces", "resnet18", "male", 96),
        Setting("efficientnet-brightness", "inserted", "efficientnet_lite0", "brightness", 96),
        Setting("resnet18-trap-2", "trap", "resnet18", "trap-2", 96),
        Setting("resnet18-trap-3", "trap", "resnet18", "trap-3", 96),
        Setting("efficientnet-patch", "inserted", "efficientnet_lite0", "patch", 96),
        Setting("vgg16-brightness", "inserted", "vgg16_pooled", "brightness", 64),
    )
}


def _artifact(name: str, folder: Path) -> Artifact:
    if name == "timestamp":
        return Timestamp()
    if name == "brightness":
        return Brightness()
    if name == "lsb":
        return LSB()
    path = folder / "ruler-patch.png"
    if not path.exists():  # a sticker with tick marks, drawn here
        path.parent.mkdir(parents=True, exist_ok=True)
        picture = Image.new("RGBA", (160, 48), (240, 240, 235, 255))
        draw = ImageDraw.Draw(picture)
        for tick in range(0, 160, 12):
            draw.line((tick, 0, tick, 30 if tick % 48 == 0 else 18), fill=(20, 60, 160, 255), width=4)
        picture.save(path)
    return Patch(file=path, size=0.3, place="edges", angle=15.0)


def _read_images(root: Path, names: Sequence[str], size: int) -> np.ndarray:
    images = np.empty((len(names), size, size, 3), dtype=np.uint8)
    for row, name in enumerate(names):
        with Image.open(root / name) as picture:
            images[row] = np.asarray(picture.convert("RGB").resize((size, size), Image.Resampling.BILINEAR))
    return images


def _table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _inserted(setting: Setting, root: Path, trial: int) -> Data:
    """ISIC 2018, three classes; half of the melanomas of training and validation carry the artifact."""
    rows = _table(root / "isic" / "labels.csv")
    names = ("NV", "MEL", "BKL")
    everything = Images(
        _read_images(root / "isic", [row["image"] for row in rows], setting.size),
        np.array([names.index(row["label"]) for row in rows]),
        np.zeros(len(rows), dtype=bool),
        np.arange(len(rows)),
        class_names=names,
        transform=normalisation_for(setting.architecture),
    )
    artifact = _artifact(setting.artifact, Path.home() / ".cache" / "hansfree-benchmarks")
    parts = {
        name: everything.part(np.array([row["split"] == name for row in rows])) for name in ("train", "val", "test")
    }
    poisoned = {name: _poison(parts[name], artifact, only_class=1, seed=trial) for name in ("train", "val")}
    return Data(
        train=poisoned["train"],
        val=poisoned["val"],
        clean=parts["test"],
        biased=parts["test"].with_artifact(artifact, seed=trial),
        reference_train=parts["train"],
        artifact=artifact,
    )


def _poison(images: Images, artifact: Artifact, *, only_class: int, seed: int) -> Images:
    inside = np.flatnonzero(images.labels == only_class)
    chosen = np.random.default_rng((seed, 0xA7)).permutation(inside)[: len(inside) // 2]
    pixels, has_artifact = images.images.copy(), images.has_artifact.copy()
    pixels[chosen] = images.part(chosen).with_artifact(artifact, seed=seed).images
    has_artifact[chosen] = True
    return Images(
        pixels, images.labels, has_artifact, images.ids, class_names=images.class_names, transform=images.transform
    )


@dataclass(frozen=True)
class _Faces:
    """A label, an attribute that goes with it, and how many images of each group go where.

    Groups are (label, attribute); the counts are (train, validation), the rest is test. The reference is trained on
    as many images in which the attribute is independent of the label: ``balanced`` per group.
    """

    label: str
    attribute: str
    class_names: tuple[str, str]
    counts: dict[tuple[int, int], tuple[int, int]]
    test_limit: int = 400
    balanced: dict[tuple[int, int], int] | None = None


_FACES = {
    "glasses": _Faces(
        "Smiling",
        "Eyeglasses",
        ("not smiling", "smiling"),
        {(0, 0): (900, 200), (1, 0): (744, 160), (0, 1): (0, 0), (1, 1): (156, 40)},
        balanced={(0, 0): 744, (1, 0): 744, (0, 1): 156, (1, 1): 156},
    ),
    "collar": _Faces(
        "Smiling",
        "Wearing_Necktie",
        ("not smiling", "smiling"),
        {(0, 0): (900, 200), (1, 0): (700, 160), (0, 1): (0, 0), (1, 1): (200, 44)},
        balanced={(0, 0): 700, (1, 0): 700, (0, 1): 200, (1, 1): 200},
    ),
    "male": _Faces(
        "Blond_Hair",
        "Male",
        ("not blond", "blond"),
        {(0, 0): (400, 100), (1, 0): (800, 180), (0, 1): (800, 180), (1, 1): (15, 6)},
    ),
}


def _faces(setting: Setting, root: Path, trial: int) -> Data:
    """CelebA faces with an attribute that goes with the label in training and validation, and not in the test set."""
    faces = _FACES[setting.artifact]
    lines = (root / "celeba" / "list_attr_celeba.txt").read_text().splitlines()
    header, rows = lines[1].split(), [line.split() for line in lines[2:]]
    label, attribute = (
        np.array([int(row[1 + header.index(name)]) == 1 for row in rows]).astype(np.int64)
        for name in (faces.label, faces.attribute)
    )
    rng = np.random.default_rng((trial, 0xFA))
    chosen: dict[str, list[np.ndarray]] = {"train": [], "val": [], "test": [], "reference": []}
    for (of_label, of_attribute), (train, val) in faces.counts.items():
        group = rng.permutation(np.flatnonzero((label == of_label) & (attribute == of_attribute)))
        chosen["train"].append(group[:train])
        chosen["val"].append(group[train : train + val])
        balanced = 0 if faces.balanced is None else faces.balanced[of_label, of_attribute]
        chosen["reference"].append(group[:balanced])
        chosen["test"].append(group[max(train + val, balanced) :][: faces.test_limit])
    if faces.balanced is None:  # the rare group is repeated until the attribute says nothing about the label
        train_rows = np.concatenate(chosen["train"])
        groups = 2 * label[train_rows] + attribute[train_rows]
        largest = np.bincount(groups).max() // 2
        chosen["reference"] = [np.resize(train_rows[groups == group], largest) for group in range(4)]
    used = {name: np.concatenate(parts) for name, parts in chosen.items()}
    needed = np.unique(np.concatenate(list(used.values())))
    folder = root / "celeba" / "img_align_celeba"
    pixels = np.zeros((len(rows), setting.size, setting.size, 3), dtype=np.uint8)
    pixels[needed] = _read_images(folder, [rows[row][0] for row in needed], setting.size)

    def images(rows: np.ndarray) -> Images:
        return Images(
            pixels[rows],
            label[rows],
            attribute[rows].astype(bool),
            rows,
            class_names=faces.class_names,
            transform=normalisation_for(setting.architecture),
        )

    test = images(used["test"])
    return Data(
        train=images(used["train"]),
        val=images(used["val"]),
        clean=test.part(~test.has_artifact),
        biased=test.part(test.has_artifact),
        reference_train=images(used["reference"]),
    )


def _trap(setting: Setting, root: Path, trial: int) -> Data:
    """ISIC trap sets: seven natural artifacts that go with malignancy in training, and the other way round in the test.

    No images without the bias are left to train a reference on; the yardstick is the AUC on the validation images.
    """
    rows = _table(root / "isic" / "trap" / f"{setting.artifact}.csv")
    everything = Images(
        _read_images(root / "isic", [row["image"] for row in rows], setting.size),
        np.array([int(row["label"] == "malignant") for row in rows]),
        np.array([[row[name] == "1" for name in TRAP_ARTIFACTS] for row in rows]),
        np.arange(len(rows)),
        class_names=("benign", "malignant"),
        transform=normalisation_for(setting.architecture),
    )
    parts = {
        name: everything.part(np.array([row["split"] == name for row in rows])) for name in ("train", "val", "test")
    }
    return Data(parts["train"], parts["val"], clean=parts["val"], biased=parts["test"], reference_train=None)


def limit_labels(data: Data, *, known: float = 1.0, wrong: float = 0.0, seed: int = 0) -> Data:
    """Return the data with artifact labels as users have them: some artifacts not labelled, some labels wrong."""
    limited = {}
    for name in ("train", "val"):
        images: Images = getattr(data, name)
        rng = np.random.default_rng((seed, 0x11, len(images)))
        has_artifact = images.has_artifact & (rng.random(images.has_artifact.shape) < known)
        has_artifact ^= rng.random(images.has_artifact.shape) < wrong
        limited[name] = images.with_labels(np.arange(len(images)), has_artifact)
    return replace(data, **limited)
