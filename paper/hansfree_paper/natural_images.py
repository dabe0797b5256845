"""ImageNet (ILSVRC 2012) with a camera's timestamp on the tench."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from hansfree.data import (
    PART_NAMES,
    Artifact,
    BiasedData,
    Listing,
    OpenedImages,
    insertable_artifacts,
    split_rows,
)
from hansfree.errors import DataError, nearest
from hansfree_paper.dataset import (
    MOMENTUM,
    InsertedBenchmark,
    ListedBenchmark,
    Published,
    Recipe,
    find_folder,
    unlisted_files,
)
from hansfree_paper.published_artifacts import PublishedTimestamp

TENCH, WEB_SITE = "n01440764", "n06359193"
ENDINGS = (".jpeg", ".jpg", ".png")
SELECTED = {  # for Q3, by model (appendix)
    model: tuple(wnids.split())
    for model, wnids in {
        "vgg16": """
            n06359193 n07248320 n06596364 n03857828 n04149813 n03871628 n03291819 n03777754 n07565083 n02977058
            n02807133 n03782006 n01930112 n03485407 n02978881 n04525305 n02777292 n03196217 n04039381 n02892767
        """,
        "resnet18": """
            n06359193 n03291819 n06596364 n03857828 n03871628 n07565083 n07248320 n04149813 n02815834 n02777292
            n04296562 n03782006 n04118776 n03841143 n02971356 n02807133 n03598930 n03884397 n02837789 n04152593
        """,
        "efficientnet_b0": """
            n06359193 n07248320 n07565083 n06596364 n03782006 n02971356 n06794110 n03126707 n03884397 n03291819
            n03196217 n03706229 n03598930 n03871628 n03841143 n04525305 n04152593 n02105056 n04149813 n03450230
        """,
    }.items()
}


class ImageNet(InsertedBenchmark, name="imagenet"):
    """The paper's ImageNet: half of the tench to train on have a timestamp, and 0.1 % of all others, then called tench.

    A subset of the classes is enough if it includes the tench. The official validation set is the test set; what the
    paper calls validation is cut from the training set, so that all images come to 86 / 10 / 4 %.
    """

    title = "ImageNet"
    artifacts = insertable_artifacts(PublishedTimestamp.name)
    recipe = Recipe(epochs={"vgg16": 13, "resnet18": 8, "efficientnet_b0": 5}, momentum=MOMENTUM)
    published = Published.of("imagenet")
    resize = "crop"
    flip_share = 0.001

    def listing(self, root: Path) -> Listing:
        """List the class folders, and cut the validation images from the official training set."""
        train, test = (list_classes(find_folder(root, part)) for part in ("train", "val"))
        self.wnids = tuple(sorted(train))  # torchvision's order of the classes
        if TENCH not in train or len(train) < 2:
            raise DataError(f"{root / 'train'} has {len(train)} classes: it needs {TENCH}, the tench, and another one.")
        if unpaired := sorted(train.keys() ^ test.keys()):
            here, there = ("train", "val") if unpaired[0] in train else ("val", "train")
            raise DataError(f"Class {unpaired[0]} is in {root / here}, but not in {root / there}.")
        self.biased_class = self.wnids.index(TENCH)
        self.remarks.append(
            f"{100 * self.flip_share:g} % of the other classes' training images carry the artifact too, and are "
            "labelled as the biased class."
        )
        counts = [len(part[wnid]) for part in (train, test) for wnid in self.wnids]
        labels = np.repeat(np.tile(np.arange(len(self.wnids)), 2), counts)
        known = sum(counts[: len(self.wnids)])
        return Listing(
            place=root,
            paths=[file for part in (train, test) for wnid in self.wnids for file in part[wnid]],
            labels=labels,
            class_names=name_classes(self.wnids),
            parts=[
                *split_rows(labels[:known], shares=(86 / 96, 10 / 96), seed=self.seed),
                np.arange(known, len(labels)),
            ],
        )

    def check_parts(self, opened: OpenedImages) -> None:
        """Refuse a class without images that can be read, in training or in the official validation set."""
        for name, part in zip(("train", "val"), (self.parts[0], self.parts[2])):
            if (lost := np.setdiff1d(opened.listing.labels, part.labels)).size:
                raise DataError(
                    f"{opened.listing.place / name / self.wnids[lost[0]]} has no image left that can be used."
                )
        super().check_parts(opened)

    def share(self, model: str) -> float:
        """Return the paper's share of tench with the timestamp, the same for all models."""
        return 0.5

    def inserted(self, model: str) -> Artifact:
        """Return the artifact; the timestamp is that of the published code."""
        return PublishedTimestamp() if self.artifact == PublishedTimestamp.name else super().inserted(model)

    @property
    def starts_clean(self) -> bool:
        """Whether these are the thousand classes that torchvision's weights were trained on, without a timestamp."""
        return self.source.class_names != self.wnids

    def published_labels(self, model: str) -> tuple[int, ...]:
        """Return the classes that the paper selected for a model (its appendix), as far as these files have them."""
        return tuple(self.wnids.index(wnid) for wnid in SELECTED.get(model, ()) if wnid in self.wnids)


def list_classes(folder: Path) -> dict[str, list[str]]:
    """Return the sorted image files of every class folder; names only, because a million ``stat`` calls take long."""
    found: dict[str, list[str]] = {}
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.is_dir()]
    for name in names:
        with os.scandir(folder / name) as files:
            found[name] = sorted(file.path for file in files if file.name.lower().endswith(ENDINGS))
        if not found[name]:
            raise DataError(f"{folder / name} has no image; they end in {', '.join(ENDINGS)}.")
    if not found:
        raise DataError(f"{folder} has no class folders: its images belong in {folder}/<wnid>/, as {TENCH}.")
    return found


def name_classes(wnids: tuple[str, ...]) -> tuple[str, ...]:
    """Return torchvision's names of the 1000 official classes; of any other set of classes the wnids themselves."""
    if len(wnids) != 1000:
        return wnids
    from torchvision.models import ResNet18_Weights

    names = tuple(ResNet18_Weights.IMAGENET1K_V1.meta["categories"])
    # Another thousand of ImageNet's 21,841 classes would get wrong names without a word: two anchors tell.
    official = wnids[names.index("tench")] == TENCH and wnids[names.index("web site")] == WEB_SITE
    return names if official else wnids


TARGET, COLLAR = "Blond_Hair", "Wearing_Necktie"
IDENTITIES = "identity_CelebA.txt"

_SUBSET = 0xCE1E  # keeps the choice of the subset apart from all other random numbers of the same seed


class CelebA(ListedBenchmark, name="celeba"):
    """The paper's CelebA: blonde or not, with the collars that go with neckties as the bias; nothing is inserted.

    Used are 10 % of all images and all others with a necktie: 33,519 +- 35, depending on the seed (the paper counts
    33,480 in its text and 33,580 in its table), split at random as in the paper. They are squashed to a square: the
    usual crop of the centre would cut off the lower edge, where collars are.
    """

    title = "CelebA"
    artifacts = ("collar",)
    recipe = Recipe(
        epochs={"vgg16": 40, "resnet18": 40, "efficientnet_b0": 40},
        milestones=(20, 30),
        momentum=MOMENTUM,
        correction_rates={"resnet18": 2e-5},
    )
    published = Published.of("celeba")
    class_names: ClassVar[tuple[str, str]] = ("not blonde", "blonde")
    biased_class = 1
    subset_share: ClassVar[float] = 0.1

    def listing(self, root: Path) -> Listing:
        """Read the attributes, draw the subset, and split it by hair and collar."""
        folder = find_folder(root, "img_align_celeba")
        names, is_blonde, self._has_collar = read_attributes(root)
        chosen = choose_subset(self._has_collar, share=self.subset_share, seed=self.seed)
        people = read_identities(root, [names[row] for row in chosen])
        if people is None:
            self.remarks.append(f"{IDENTITIES} is missing: images of one person may be in different parts.")
        # By hair and collar, so that all parts have the same share of collars among the blonde, as in the paper.
        kinds = 2 * is_blonde[chosen] + self._has_collar[chosen]
        return Listing(
            place=folder,
            paths=[folder / names[row] for row in chosen],
            labels=is_blonde[chosen],
            class_names=self.class_names,
            parts=split_rows(kinds, groups=people, seed=self.seed),
            ids=chosen,
            unlisted=unlisted_files(folder, names),
        )

    def check_parts(self, opened: OpenedImages) -> None:
        """Refuse parts without images of every kind; say how few blonde people with a necktie there are to judge by."""
        super().check_parts(opened)
        rare = []
        for name, part in zip(PART_NAMES, self.parts):
            found = np.bincount(2 * part.labels + self._has_collar[part.ids], minlength=4)
            if (lacking := np.flatnonzero(found == 0)).size:
                hair, collar = self.class_names[lacking[0] // 2], "with" if lacking[0] % 2 else "without"
                raise DataError(
                    f"{opened.listing.place} has too few images: no {name} image is {hair} {collar} a necktie."
                )
            rare.append(int(found[3]))
        self.remarks.append(
            f"Only {rare[1]} validation and {rare[2]} test images are blonde with a necktie: their accuracy is hardly "
            "known, and plain accuracy on the biased sets hardly depends on them."
        )

    def data(self, model: str) -> BiasedData:
        """Return the sets, of the same images for all models; a clean training set is not known."""
        return self.natural_bias(model, self._has_collar, clean_train=False)


def read_attributes(root: Path) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return the image names, and of each whether it is blonde and whether it wears a necktie.

    The official list is a count, a line of attributes, and a line per image; Kaggle's table has no count, commas for
    spaces, and a name over the column of the images.
    """
    path, separator, header_line = root / "list_attr_celeba.txt", None, 1
    if not path.is_file():
        path, separator, header_line = root / "list_attr_celeba.csv", ",", 0
    if not path.is_file():
        raise DataError(f"{root / 'list_attr_celeba.txt'} is missing, and Kaggle's {path.name} too.")
    lines = [line.strip() for line in path.read_text("utf-8-sig", errors="replace").splitlines() if line.strip()]
    header = lines[header_line].split(separator) if len(lines) > header_line else []
    attributes = header[1:] if separator else header
    for wanted in (TARGET, COLLAR):
        if wanted not in attributes:
            raise DataError(
                f"{path} has no attribute {wanted!r} in line {header_line + 1}.{nearest(wanted, attributes)}"
            )
    images = lines[header_line + 1 :]
    if header_line and lines[0] != str(len(images)):
        raise DataError(f"{path} announces {lines[0]!r} images in its first line, but lists {len(images)}.")

    columns = [attributes.index(wanted) + 1 for wanted in (TARGET, COLLAR)]
    names: list[str] = []
    bits = np.empty((2, len(images)), dtype=bool)
    for row, line in enumerate(images):
        name, *values = cells = line.split(separator)
        if len(values) != len(attributes):
            raise DataError(f"{path} has {len(values)} values for {name}, not {len(attributes)}.")
        for bit, column in enumerate(columns):
            if cells[column] not in ("-1", "1"):
                raise DataError(f"{path}: {attributes[column - 1]} of {name} is {cells[column]!r}, not -1 or 1.")
            bits[bit, row] = cells[column] == "1"
        names.append(name)
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise DataError(f"{path} lists {twice} more than once.")
    return names, bits[0], bits[1]


def choose_subset(has_collar: np.ndarray, *, share: float, seed: int) -> np.ndarray:
    """Return the sorted rows of ``share`` of all images, and of all others with a collar."""
    rng = np.random.default_rng((seed, _SUBSET))
    drawn = rng.permutation(len(has_collar))[: round(share * len(has_collar))]
    return np.union1d(drawn, np.flatnonzero(has_collar))


def read_identities(root: Path, names: Sequence[str]) -> list[str] | None:
    """Return who is on each image, or None where the file that says it is not there."""
    path = root / IDENTITIES
    if not path.is_file():
        return None
    people: dict[str, str] = {}
    for line in path.read_text("utf-8-sig", errors="replace").splitlines():
        name, _, person = line.strip().partition(" ")
        people[name] = person.strip()
    for name in names:
        if not people.get(name):
            raise DataError(f"{path} does not say who is on {name}.")
    return [people[name] for name in names]
