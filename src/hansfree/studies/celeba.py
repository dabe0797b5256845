"""CelebA with the bias that it came with: who wears a collar and a tie is rarely blonde."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from hansfree.datasets.base import normalisation_for
from hansfree.datasets.datasets import Flagged
from hansfree.datasets.images import find_folder, unlisted_files
from hansfree.datasets.splits import Subset, split_rows
from hansfree.errors import DataError, nearest
from hansfree.studies.listing import PART_NAMES, ListedStudy, Listing
from hansfree.studies.study import BiasedData, Published, Recipe

TARGET, COLLAR = "Blond_Hair", "Wearing_Necktie"
IDENTITIES = "identity_CelebA.txt"

_SUBSET = 0xCE1E  # keeps the choice of the subset apart from all other random numbers of the same seed


class CelebA(ListedStudy, name="celeba"):
    """The paper's CelebA: blonde or not, with the collars that go with neckties as the bias; nothing is inserted.

    Files: ``list_attr_celeba.txt`` (or Kaggle's ``.csv``) and ``img_align_celeba/*.jpg``. With ``identity_CelebA.txt``
    no person is in two parts of the split; ``list_eval_partition.txt`` is not used, because the paper splits
    80 / 10 / 10 at random.

    Used are 10 % of all images and all others with a necktie. The paper counts 33,480 of them in its text and 33,580 in
    its table. The rule gives 20,260 of the 202,599 images and nine tenths of the 14,732 neckties, 33,519 give or take
    35 by the luck of the draw: both may be right. Images that were not drawn need not be there.

    The images are squashed to a square: the usual crop of the centre would cut off the lower edge, where collars are.
    Few images with a collar are blonde (the paper: 6 % of the blonde have one, some 200 in all three parts), so plain
    accuracy on the biased sets says little: read the balanced one.
    """

    title = "CelebA"
    artifacts = ("collar",)
    recipe = Recipe(
        epochs={"vgg16": 40, "resnet18": 40, "efficientnet_b0": 40},
        milestones=(20, 30),
        correction_rates={"resnet18": 2e-5},
    )
    published = Published.read(
        """
        vgg16            vanilla   93.7 2.6  82.8 2.2  36.8 0.2  0.92 0.01  13.6 1.3
        vgg16            rrr       93.7 2.0  91.2 1.7  42.6 0.2  0.88 0.01   2.0 0.4
        vgg16            p-clarc   56.6 1.8  60.8 3.3  19.3 0.2  1.24 0.01   4.3 0.6
        vgg16            a-clarc   93.0 2.1  90.4 1.7  44.2 0.2  0.95 0.01   9.5 1.0
        vgg16            rr-clarc  93.6 1.9  92.6 1.6  54.1 0.2  0.09 0.01   2.3 0.4
        resnet18         vanilla   96.8 2.0  58.3 3.2  21.4 0.4  1.92 0.01  19.2 1.9
        resnet18         rrr       95.5 2.8  74.7 2.8  91.6 0.3  1.86 0.01   7.7 1.1
        resnet18         p-clarc   96.5 2.4  64.4 3.1   5.7 0.2  2.03 0.01   7.7 1.0
        resnet18         a-clarc   96.1 2.4  62.9 3.1  37.8 0.5  1.43 0.01  17.0 1.8
        resnet18         rr-clarc  95.8 2.7  75.3 2.8  60.5 0.5  0.04 0.01   9.1 1.1
        efficientnet_b0  vanilla   96.6 2.0  58.3 3.2  24.8 0.4  1.47 0.02  26.1 2.8
        efficientnet_b0  rrr       95.4 2.7  75.6 2.8  50.4 0.5  1.09 0.02  14.3 1.8
        efficientnet_b0  p-clarc   96.8 1.6  55.0 3.3   4.9 0.2  0.85 0.02  25.9 2.5
        efficientnet_b0  a-clarc   96.7 2.2  60.6 3.2  23.8 0.4  1.27 0.02  21.8 2.6
        efficientnet_b0  rr-clarc  92.0 2.8  77.6 2.7  42.6 0.5  0.00 0.01  21.3 2.5
        """,
        strengths="""
        vgg16            rrr       5e5
        vgg16            rr-clarc  5e8
        resnet18         rrr       5e5
        resnet18         rr-clarc  5e8
        efficientnet_b0  rrr       5e6
        efficientnet_b0  rr-clarc  5e11
        """,
        seconds="""
        vgg16            vanilla    39.8 0.1
        vgg16            rrr        73.2 0.1
        vgg16            p-clarc    39.6 0.1
        vgg16            a-clarc    40.4 0.3
        vgg16            rr-clarc   66.3 0.1
        resnet18         vanilla    27.2 0.2
        resnet18         rrr        42.1 0.1
        resnet18         p-clarc    27.1 0.2
        resnet18         a-clarc    27.8 0.2
        resnet18         rr-clarc   35.2 0.1
        efficientnet_b0  vanilla    30.4 0.1
        efficientnet_b0  rrr       126.8 0.3
        efficientnet_b0  p-clarc    30.2 0.2
        efficientnet_b0  a-clarc    30.7 0.3
        efficientnet_b0  rr-clarc   46.7 0.2
        """,
    )
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

    def check_parts(self, listing: Listing) -> None:
        """Refuse parts without images of every kind; say how few blonde people with a necktie there are to judge by."""
        super().check_parts(listing)
        rare = []
        for name, part in zip(PART_NAMES, self.parts):
            found = np.bincount(2 * part.labels + self._has_collar[part.ids], minlength=4)
            if (lacking := np.flatnonzero(found == 0)).size:
                hair, collar = self.class_names[lacking[0] // 2], "with" if lacking[0] % 2 else "without"
                raise DataError(f"{listing.place} has too few images: no {name} image is {hair} {collar} a necktie.")
            rare.append(int(found[3]))
        self.remarks.append(
            f"Only {rare[1]} validation and {rare[2]} test images are blonde with a necktie: their accuracy is hardly "
            "known, and plain accuracy on the biased sets hardly depends on them."
        )

    def data(self, model: str) -> BiasedData:
        """Return the sets, of the same images for all models; a clean training set cannot be known."""
        train, val, test = self.parts

        def flagged(part: Subset, *, has_artifact: bool | None = None) -> Flagged:
            bits = self._has_collar[part.ids]
            rows = None if has_artifact is None else np.flatnonzero(bits == has_artifact)
            return Flagged(part, bits, rows=rows, transform=normalisation_for(model))

        return BiasedData(
            train=flagged(train),
            val_clean=flagged(val, has_artifact=False),
            val_biased=flagged(val, has_artifact=True),
            test_clean=flagged(test, has_artifact=False),
            test_biased=flagged(test, has_artifact=True),
            biased_class=self.biased_class,
            artifact=self.artifact,
            is_localized=True,
            is_inserted=False,
            has_masks=False,
        )


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
