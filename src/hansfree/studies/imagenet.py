"""ImageNet (ILSVRC 2012) with a camera's timestamp on the tench."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from hansfree.artifacts import Timestamp
from hansfree.datasets.images import find_folder
from hansfree.datasets.splits import split_rows
from hansfree.errors import DataError
from hansfree.studies.biased import stampable
from hansfree.studies.listing import Listing, StampedStudy
from hansfree.studies.study import Published, Recipe

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


class ImageNet(StampedStudy, name="imagenet"):
    """The paper's ImageNet: half of the tench to train on have a timestamp, and 0.1 % of all others, then called tench.

    Files: ``train/<wnid>/*.JPEG`` and ``val/<wnid>/*.JPEG``; some of the classes will do, if the tench (n01440764) is
    among them. The official validation set is the test set; what the paper calls validation is cut from the training
    set, so that all images come to 86 / 10 / 4 %.

    Every file is checked at the start, all 1.3 million of them too (header and end, no pixels): that costs some minutes
    on a local disk, less than one pass over the images, of which a study makes several; a damaged file that is found
    in the tenth hour costs the ten hours.
    """

    title = "ImageNet"
    artifacts = stampable(Timestamp.name)
    recipe = Recipe(epochs={"vgg16": 13, "resnet18": 8, "efficientnet_b0": 5})
    published = Published.read(
        """
        vgg16            vanilla   68.7 0.7  43.5 0.7   62.9 0.1  1.07 0.01  19.6 1.9
        vgg16            rrr       68.6 0.7  49.6 0.7   54.6 0.1  0.62 0.01   6.8 0.8
        vgg16            p-clarc   68.3 0.7  62.6 0.7   37.1 0.1  0.30 0.01  15.9 1.3
        vgg16            a-clarc   67.7 0.7  60.9 0.7   49.0 0.1  0.47 0.01  12.2 1.1
        vgg16            rr-clarc  68.5 0.7  62.6 0.7   49.1 0.1  0.33 0.01   8.7 0.6
        resnet18         vanilla   66.7 0.7  52.9 0.7  100.0 0.1  4.35 0.01  13.4 0.9
        resnet18         rrr       66.4 0.7  59.1 0.7    7.7 0.1  2.07 0.01   7.1 0.6
        resnet18         p-clarc   67.0 0.7  61.7 0.7   80.5 0.1  1.93 0.01  13.5 0.9
        resnet18         a-clarc   65.0 0.7  63.3 0.7   87.8 0.1  0.87 0.01  11.3 0.8
        resnet18         rr-clarc  66.5 0.7  64.0 0.7   55.4 0.1  0.54 0.01  10.1 0.7
        efficientnet_b0  vanilla   73.9 0.6  53.2 0.7   99.2 0.1  3.02 0.01  18.6 1.6
        efficientnet_b0  rrr       73.9 0.6  59.1 0.7   65.9 0.1  0.97 0.01  13.2 1.4
        efficientnet_b0  p-clarc   74.1 0.6  54.6 0.7   20.8 0.1  1.29 0.01  20.5 1.5
        efficientnet_b0  a-clarc   71.4 0.6  69.9 0.6   90.5 0.1  1.39 0.01  18.9 1.9
        efficientnet_b0  rr-clarc  73.9 0.6  70.8 0.6   56.4 0.1  0.95 0.01  13.2 1.4
        """,
        strengths="""
        vgg16            rrr       1e2
        vgg16            rr-clarc  5e5
        resnet18         rrr       5e2
        resnet18         rr-clarc  1e4
        efficientnet_b0  rrr       1
        efficientnet_b0  rr-clarc  5e5
        """,
        seconds="""
        vgg16            vanilla    277.5  3.6
        vgg16            rrr        412.8  3.7
        vgg16            p-clarc    284.7  8.1
        vgg16            a-clarc    296.2 11.9
        vgg16            rr-clarc   304.8  8.4
        resnet18         vanilla    262.1  3.3
        resnet18         rrr        327.9 11.8
        resnet18         p-clarc    259.0  2.6
        resnet18         a-clarc    255.1  1.7
        resnet18         rr-clarc   267.8  4.8
        efficientnet_b0  vanilla    265.9  6.8
        efficientnet_b0  rrr       1476.5  8.5
        efficientnet_b0  p-clarc    270.0  9.2
        efficientnet_b0  a-clarc    266.4  8.7
        efficientnet_b0  rr-clarc   277.2  8.0
        """,
    )
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

    def check_parts(self, listing: Listing) -> None:
        """Refuse a class without images that can be read, in training or in the official validation set."""
        for name, part in zip(("train", "val"), (self.parts[0], self.parts[2])):
            if (lost := np.setdiff1d(listing.labels, part.labels)).size:
                raise DataError(f"{listing.place / name / self.wnids[lost[0]]} has no image left that can be used.")
        super().check_parts(listing)

    def share(self, model: str) -> float:
        """Return the paper's share of tench with the timestamp, the same for all models."""
        return 0.5

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
