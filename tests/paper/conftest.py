"""Every experiment on one tiny subject, and the paper's datasets in their official layout, made tiny."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hansfree_paper.aggregate import Finding
from hansfree_paper.medical import CLASSES
from hansfree_paper.natural_images import TENCH, WEB_SITE, CelebA
from hansfree_paper.runner import Reproduction, reproduce
from hansfree_paper.subjects import Plan, Subject
from tests.pipeline.studies import PLAN, Single, opened

Build = Callable[[Path], None]
COMMAND = "hansfree reproduce something --data single"


class Made:
    """Every experiment on one tiny subject, run once when it is first asked for: its finding and its page."""

    def __init__(self, work: Path) -> None:
        self.work, self.out, self.findings = work, work / "out", dict[str, Finding]()

    def run(self, name: str) -> Path:
        """Run an experiment, again if it was run before; remember its finding."""
        experiment = Reproduction.named(name)

        def examine(self_: Reproduction, subject: Subject) -> Finding:
            self.findings[name] = original(self_, subject)
            return self.findings[name]

        with pytest.MonkeyPatch.context() as patch:
            original = experiment.examine
            patch.setattr(experiment, "examine", examine)
            return reproduce(
                name, [(Single(artifact="lsb"), Plan(**PLAN))], out=self.out, work=self.work, command=COMMAND
            )

    def finding(self, name: str) -> Finding:
        """Return what the experiment found."""
        if name not in self.findings:
            self.run(name)
        return self.findings[name]

    def text(self, name: str) -> str:
        """Return the experiment's page."""
        self.finding(name)
        return (self.out / f"single-{name}.md").read_text(encoding="utf-8")

    def subject(self) -> AbstractContextManager[Subject]:
        """Open the subject."""
        return opened(self.work, Single(artifact="lsb"))


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("reproduce"))


def draw(path: Path, *, size: tuple[int, int] = (24, 32), mode: str = "RGB", seed: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (*size, 3) if mode == "RGB" else size
    Image.fromarray(np.random.default_rng(seed).integers(0, 200, shape, dtype=np.uint8)).save(path)


def write_rows(path: Path, rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


ISIC_COUNTS = (40, 30, 10, 10, 10, 10, 10, 10)
ISIC_COLUMNS = [*CLASSES, "UNK"]


def one_hot(kind: str) -> list[str]:
    return [f"{float(column == kind)}" for column in ISIC_COLUMNS]


def build_isic(root: Path) -> None:
    kinds = np.random.default_rng(0).permutation(np.repeat(list(CLASSES), ISIC_COUNTS))
    names = [f"ISIC_{number:07}" for number in range(len(kinds))]
    for number, name in enumerate(names):
        draw(root / "ISIC_2019_Training_Input" / f"{name}.jpg", seed=number)
    (root / "ISIC_2019_Training_Input" / "LICENSE.txt").write_text("CC-BY-NC")
    rows = [["image", *ISIC_COLUMNS], *([name, *one_hot(kind)] for name, kind in zip(names, kinds))]
    write_rows(root / "ISIC_2019_Training_GroundTruth.csv", rows)


AGES = [1, 228, *(months for months in (30, 60, 92, 120, 137, 150, 200) for _ in range(10))]


def build_bone_age(root: Path) -> None:
    for number in range(len(AGES)):
        draw(root / "boneage-training-dataset" / f"{1377 + number}.png", size=(32, 24), mode="L", seed=number)
    rows = [(1377 + number, age, bool(number % 2)) for number, age in enumerate(AGES)]
    write_rows(root / "boneage-training-dataset.csv", [("id", "boneage", "male"), *rows])


WNIDS = (TENCH, "n01443537", "n03126707", WEB_SITE)
PER_CLASS = (24, 2)


def build_imagenet(root: Path) -> None:
    # the classes' order must not depend on the order in which folders are made
    for number, wnid in enumerate(reversed(WNIDS)):
        for index in range(PER_CLASS[0]):
            draw(root / "train" / wnid / f"{wnid}_{index}.JPEG", seed=40 * number + index)
        for index in range(PER_CLASS[1]):
            draw(root / "val" / wnid / f"ILSVRC2012_val_{number}{index}.JPEG", seed=index)


ATTRIBUTES = ("Bald", "Blond_Hair", "Male", "Wearing_Necktie", "Young")
FACES = 120
BLONDE, COLLAR = np.arange(FACES) % 3 == 0, np.arange(FACES) % 4 == 0


def face(row: int) -> str:
    return f"{row + 1:06}.jpg"


def attributes(row: int, separator: str = " ") -> str:
    bits = {"Blond_Hair": BLONDE[row], "Wearing_Necktie": COLLAR[row]}
    return separator.join([face(row), *("1" if bits.get(attribute) else "-1" for attribute in ATTRIBUTES)])


def build_celeba(root: Path) -> None:
    for row in range(FACES):
        (root / "img_align_celeba").mkdir(exist_ok=True)
        Image.new("RGB", (22, 27), (row, 90, 60)).save(root / "img_align_celeba" / face(row))
    lines = [str(FACES), " ".join(ATTRIBUTES), *map(attributes, range(FACES))]
    (root / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")


LABELS, PARTS = ("naevus", "melanoma", "wart"), ("train", "train", "train", "train", "val", "test")


def build_table(root: Path) -> None:
    (root / "images").mkdir()
    rows = [("image", "label", "split", "ruler", "age")]
    for row in range(36):
        Image.new("RGB", (20, 20), (row, 90, 60)).save(root / "images" / f"{row:03}.png")
        rows.append((f"images/{row:03}.png", LABELS[row % 3], PARTS[row // 6], str(int(row % 5 == 0)), str(30 + row)))
    write_rows(root / "labels.csv", rows)


BUILDERS: dict[str, Build] = {
    "isic2019": build_isic,
    "bone_age": build_bone_age,
    "imagenet": build_imagenet,
    "celeba": build_celeba,
    "table": build_table,
}


@pytest.fixture(scope="session")
def official(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a dataset's files, which no test may change."""
    folders: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp(name)
            BUILDERS[name](folders[name])
        return folders[name]

    return folder


@pytest.fixture
def root(
    request: pytest.FixtureRequest,
    official: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """Return a copy that a test may change, of the dataset that the test's module or parameter names."""
    monkeypatch.setattr(CelebA, "subset_share", 0.9)  # a tenth of so few images would be too few
    name = getattr(request, "param", None) or request.module.DATASET
    return shutil.copytree(official(name), tmp_path / "copy")
