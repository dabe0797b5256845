"""Pediatric Bone Age (RSNA 2017): radiographs of hands, some of one age brightened (paper, App. A)."""

from __future__ import annotations

from pathlib import Path

from hansfree.artifacts import Brightness
from hansfree.datasets.images import find_folder, read_table, unlisted_files
from hansfree.errors import DataError
from hansfree.studies.biased import stampable
from hansfree.studies.listing import Listing, StampedStudy
from hansfree.studies.study import Published, Recipe

IMAGES, TRUTH = "boneage-training-dataset", "boneage-training-dataset.csv"
BINS = 5

PUBLISHED = Published.read(
    """
    vgg16           vanilla   78.8   1.2  49.8   1.4  85.8   0.1  5.58  0.01     -     -
    vgg16           rrr       78.8   1.2  49.8   1.4  85.7   0.1  5.58  0.01     -     -
    vgg16           p-clarc   78.9   1.1  77.4   1.2  66.0   0.1  1.67  0.01     -     -
    vgg16           a-clarc   77.8   1.2  69.0   1.3  65.7   0.1  3.11  0.01     -     -
    vgg16           rr-clarc  78.8   1.2  77.7   1.2  52.4   0.1  0.44  0.01     -     -
    resnet18        vanilla   75.1   1.2  46.3   1.4 100.0   0.1  3.01  0.01     -     -
    resnet18        rrr       74.5   1.2  47.9   1.4 100.0   0.1  2.78  0.01     -     -
    resnet18        p-clarc   75.0   1.2  70.7   1.3  60.3   0.2  1.20  0.01     -     -
    resnet18        a-clarc   74.8   1.2  57.4   1.4  33.9   0.2  0.37  0.01     -     -
    resnet18        rr-clarc  71.1   1.3  74.2   1.2  39.2   0.2  0.07  0.01     -     -
    efficientnet_b0 vanilla   78.2   1.2  44.3   1.4  89.8   0.1  1.71  0.01     -     -
    efficientnet_b0 rrr       78.4   1.2  49.6   1.4  79.1   0.2  1.07  0.01     -     -
    efficientnet_b0 p-clarc   65.2   1.3  35.1   1.3   2.1   0.1  2.20  0.01     -     -
    efficientnet_b0 a-clarc   78.0   1.2  54.2   1.4  63.9   0.2  1.00  0.01     -     -
    efficientnet_b0 rr-clarc  77.6   1.2  70.3   1.3  53.3   0.2  0.07  0.01     -     -
    """,
    strengths="""
    vgg16           rrr      5e-2
    vgg16           rr-clarc 1e8
    resnet18        rrr      1e2
    resnet18        rr-clarc 5e9
    efficientnet_b0 rrr      5e1
    efficientnet_b0 rr-clarc 5e11
    """,
    seconds="""
    vgg16           vanilla    91.4 0.1
    vgg16           rrr       147.8 0.4
    vgg16           rr-clarc   93.7 0.3
    vgg16           p-clarc    92.1 0.5
    vgg16           a-clarc    92.2 0.6
    resnet18        vanilla    88.4 0.3
    resnet18        rrr        94.0 0.3
    resnet18        rr-clarc   88.6 0.2
    resnet18        p-clarc    88.0 0.2
    resnet18        a-clarc    88.0 0.2
    efficientnet_b0 vanilla    88.0 0.2
    efficientnet_b0 rrr       998.3 2.5
    efficientnet_b0 rr-clarc   89.0 0.2
    efficientnet_b0 p-clarc    88.3 0.2
    efficientnet_b0 a-clarc    88.5 0.1
    """,
)


class BoneAge(StampedStudy, name="bone_age"):
    """12,611 radiographs of hands in five classes of age, as the challenge's archives unpack.

    The folder holds ``boneage-training-dataset.csv`` (id, boneage in months, male) and the pictures in
    ``boneage-training-dataset``. The table names no patients: each image counts as one of its own.
    """

    title = "Pediatric Bone Age"
    artifacts = stampable(Brightness.name)
    biased_class = 2  # the middle bin: 92-137 months
    recipe = Recipe(epochs={"vgg16": 100, "resnet18": 100, "efficientnet_b0": 100}, milestones=(30, 40))
    published = PUBLISHED

    def listing(self, root: Path) -> Listing:
        """Read the ages and cut their range into bins of equal width."""
        folder = find_folder(root, IMAGES)
        rows = read_table(root / TRUTH, ["id", "boneage"])
        labels, names = bin_ages([_months(row, root / TRUTH) for row in rows], root / TRUTH)
        files = [f"{row['id']}.png" for row in rows]
        self.remarks.append(f"{TRUTH} names no patients: two images of one patient may be in different parts.")
        return Listing(
            place=root / TRUTH,
            paths=[folder / name for name in files],
            labels=labels,
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
