"""ISIC 2019: skin lesions, with a text hidden in the lowest bits of some melanomas (paper, App. A)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hansfree.data import LSB, Artifact, Brightness, Listing, insertable_artifacts, read_table
from hansfree.errors import DataError
from hansfree_paper.dataset import MOMENTUM, InsertedBenchmark, Published, Recipe, find_folder, unlisted_files
from hansfree_paper.published_artifacts import LSB_TEXT

ISIC_IMAGES, ISIC_TRUTH, ISIC_METADATA = (
    "ISIC_2019_Training_Input",
    "ISIC_2019_Training_GroundTruth.csv",
    "ISIC_2019_Training_Metadata.csv",
)
CLASSES = {
    "MEL": "Melanoma",
    "NV": "Melanocytic nevus",
    "BCC": "Basal cell carcinoma",
    "AK": "Actinic keratosis",
    "BKL": "Benign keratosis",
    "DF": "Dermatofibroma",
    "VASC": "Vascular lesion",
    "SCC": "Squamous cell carcinoma",
}  # the table's ninth column, UNK, is for the test set: no training image is of an unknown kind


class ISIC2019(InsertedBenchmark, name="isic2019"):
    """25,331 dermoscopic images of 8 kinds of lesions, as the challenge's archives unpack.

    Where ``ISIC_2019_Training_Metadata.csv`` is there too, images of one lesion are never in two parts.
    """

    title = "ISIC 2019"
    artifacts = insertable_artifacts(LSB.name)
    biased_class = list(CLASSES).index("MEL")
    recipe = Recipe(
        epochs={"vgg16": 150, "resnet18": 150, "efficientnet_b0": 150}, milestones=(30, 40), momentum=MOMENTUM
    )
    published = Published.of("isic2019")

    def listing(self, root: Path) -> Listing:
        """Read the one-hot table of classes and, where it is there, the lesion of each image."""
        folder = find_folder(root, ISIC_IMAGES)
        rows = read_table(root / ISIC_TRUTH, ["image", *CLASSES])
        names = [row["image"] for row in rows]
        files = [f"{name}.jpg" for name in names]
        lesions = _lesions(root / ISIC_METADATA, names) if (root / ISIC_METADATA).exists() else None
        if lesions is None:
            self.remarks.append(f"{ISIC_METADATA} is missing: images of one lesion may be in different parts.")
        elif unknown := lesions.count(""):
            self.remarks.append(
                f"{ISIC_METADATA} does not know the lesion of {unknown} images: each counts as its own."
            )
        return Listing(
            place=root / ISIC_TRUTH,
            paths=[folder / name for name in files],
            labels=np.array([_label(row, root / ISIC_TRUTH) for row in rows]),
            class_names=tuple(CLASSES.values()),
            groups=lesions,
            unlisted=unlisted_files(folder, files),
        )

    def share(self, model: str) -> float:
        """Return the paper's share of melanomas with the artifact."""
        return {"resnet18": 0.125}.get(model, 0.08)  # App. A: models differ in how readily they learn the artifact

    def inserted(self, model: str) -> Artifact:
        """Return the artifact; the hidden text fills as many bits as in the paper."""
        if self.artifact == LSB.name:
            return LSB(bits={"efficientnet_b0": 2}.get(model, 3), text=LSB_TEXT)
        return super().inserted(model)


def _label(row: dict[str, str], path: Path) -> int:
    """Return the one class that is marked with 1."""
    try:
        marks = [float(row[column]) for column in CLASSES]
    except ValueError as error:
        raise DataError(f"{path} has a mark that is not 0 or 1 for image {row['image']!r} ({error}).") from error
    if sorted(marks) != [0.0] * (len(CLASSES) - 1) + [1.0]:
        given = ", ".join(column for column, mark in zip(CLASSES, marks) if mark) or "none"
        raise DataError(
            f"{path} must mark exactly one class of {', '.join(CLASSES)} with 1 for image {row['image']!r}, "
            f"but marks {given}."
        )
    return marks.index(1.0)


def _lesions(path: Path, names: list[str]) -> list[str]:
    """Return the lesion of each image, an empty text where it is not known."""
    lesions = {row["image"]: row["lesion_id"] for row in read_table(path, ["image", "lesion_id"])}
    for name in names:
        if name not in lesions:
            raise DataError(f"{path} has no row for image {name!r}, which {ISIC_TRUTH} lists: get both of one release.")
    return [lesions[name] for name in names]


BONE_AGE_IMAGES = "boneage-training-dataset"
BONE_AGE_TRUTHS = ("boneage-training-dataset.csv", "train.csv")  # of Kaggle, and of the challenge's own archive
BINS = 5


class BoneAge(InsertedBenchmark, name="bone_age"):
    """12,611 radiographs of hands in five classes of age, as the challenge's archives unpack.

    The table names no patients: each image counts as one of its own.
    """

    title = "Pediatric Bone Age"
    artifacts = insertable_artifacts(Brightness.name)
    biased_class = 2  # the middle bin: 92-137 months
    recipe = Recipe(
        epochs={"vgg16": 100, "resnet18": 100, "efficientnet_b0": 100}, milestones=(30, 40), momentum=MOMENTUM
    )
    published = Published.of("bone_age")

    def listing(self, root: Path) -> Listing:
        """Read the ages and cut their range into bins of equal width."""
        folder = find_folder(root, BONE_AGE_IMAGES)
        truth = next((root / name for name in BONE_AGE_TRUTHS if (root / name).exists()), root / BONE_AGE_TRUTHS[0])
        rows = read_table(truth, ["id", "boneage"])
        labels, names = bin_ages([_months(row, truth) for row in rows], truth)
        files = [f"{row['id']}.png" for row in rows]
        self.remarks.append(f"{truth.name} names no patients: two images of one patient may be in different parts.")
        return Listing(
            place=truth,
            paths=[folder / name for name in files],
            labels=np.array(labels),
            class_names=names,
            unlisted=unlisted_files(folder, files),
        )

    def share(self, model: str) -> float:
        """Return the paper's share of brightened images, the same for all models."""
        return 0.2


def bin_ages(ages: list[int], path: Path) -> tuple[list[int], tuple[str, ...]]:
    """Return the bin of each age, and the bins' names by the first and last whole month in them.

    In whole numbers, so that no age falls beside a rounded edge; the range 1 to 228 gives the paper's 92-137 months.
    """
    low, width = min(ages), max(ages) - min(ages)  # the width of all bins together
    if width < BINS:
        raise DataError(f"{path} has ages from {low} to {low + width} months: too few for {BINS} bins.")
    starts = [low - (-number * width // BINS) for number in range(BINS)]  # rounded up
    ends = [*(start - 1 for start in starts[1:]), low + width]
    labels = [min(BINS - 1, BINS * (age - low) // width) for age in ages]
    return labels, tuple(f"{start}-{end} months" for start, end in zip(starts, ends))


def _months(row: dict[str, str], path: Path) -> int:
    if not row["boneage"].isdecimal():
        raise DataError(f"{path} gives image {row['id']!r} the boneage {row['boneage']!r}: it is in whole months.")
    return int(row["boneage"])
