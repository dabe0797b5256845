"""What all datasets promise and reject: options, recipes, published numbers, splits by seed, checks of all files."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hansfree.corrections.training import FineTuning, Pretraining
from hansfree.data.biased import SETS, BiasedData
from hansfree.errors import DataError, OptionError
from hansfree_paper.dataset import PUBLISHED_METRICS, BenchmarkDataset, Recipe
from hansfree_paper.natural_images import TENCH, WEB_SITE
from hansfree_paper.subjects import recipe_for, tuning_for
from tests.paper.conftest import ATTRIBUTES, BUILDERS, FACES, attributes, face, one_hot

MEMBERS = BenchmarkDataset.members()
PAPER = ("isic2019", "bone_age", "imagenet", "celeba")


def read(root: Path, name: str, **options: object) -> BenchmarkDataset:
    return BenchmarkDataset.named(name)(root, size=32, **options)  # type: ignore[arg-type]


def fingerprints(study: BenchmarkDataset) -> list[str]:
    return [getattr(study.data("vgg16"), name).fingerprint for name in SETS]


@pytest.mark.parametrize("study", MEMBERS.values(), ids=MEMBERS)
def test_every_member_says_what_it_is_and_what_it_needs(study: type[BenchmarkDataset]) -> None:
    assert study.title
    assert study.artifacts
    given = Path("somewhere")
    if study.needs_root:
        with pytest.raises(OptionError, match=f"{study.title} needs the folder of its files"):
            study()
        with pytest.raises(DataError, match="There is no folder"):
            study(given / "nowhere")
    else:
        with pytest.raises(OptionError, match=f"{study.title} needs no files"):
            study(given)
    root = given if study.needs_root else None
    if not study.further_artifacts:  # else the files have to say
        with pytest.raises(OptionError, match=f"{study.title} has no artifact 'tattoo'"):
            study(root, artifact="tattoo")
    with pytest.raises(OptionError, match="seed is 0 or more"):
        study(root, seed=-1)


# The paper's numbers


@pytest.mark.parametrize(
    ("dataset", "model", "method", "scores", "strength", "seconds"),
    [
        ("isic2019", "vgg16", "rrr", ((0.767, 0.008), (0.428, 0.01), (0.717, 0.001), (0.00265, 1e-5)), 50,
         (218.7, 0.2)),
        ("isic2019", "resnet18", "rr-clarc", ((0.785, 0.008), (0.712, 0.009), (0.757, 0.001), (0.00011, 1e-5)), 1e11,
         (106.6, 0.2)),
        ("bone_age", "efficientnet_b0", "p-clarc", ((0.652, 0.013), (0.351, 0.013), (0.021, 0.001), (0.0022, 1e-5)),
         None, (88.3, 0.2)),
        ("imagenet", "vgg16", "a-clarc",
         ((0.677, 0.007), (0.609, 0.007), (0.49, 0.001), (0.00047, 1e-5), (0.122, 0.011)), None, (296.2, 11.9)),
        ("celeba", "efficientnet_b0", "rr-clarc",
         ((0.92, 0.028), (0.776, 0.027), (0.426, 0.005), (0, 1e-5), (0.213, 0.025)), 5e11, (46.7, 0.2)),
    ],
)  # fmt: skip
def test_published_numbers(dataset, model, method, scores, strength, seconds):
    published = BenchmarkDataset.named(dataset).published
    assert len(published.scores) == 15 * len(scores)
    assert (len(published.strengths), len(published.seconds)) == (6, 15)
    found = [published.scores[model, method, metric] for metric in PUBLISHED_METRICS[: len(scores)]]
    np.testing.assert_allclose(found, scores)
    assert published.strengths.get((model, method)) == strength
    assert published.seconds[model, method] == seconds


@pytest.mark.parametrize(
    ("dataset", "epochs", "milestones", "rates"),
    [
        ("isic2019", (150, 150, 150), (30, 40), {}),
        ("bone_age", (100, 100, 100), (30, 40), {}),
        ("imagenet", (13, 8, 5), (), {}),
        ("celeba", (40, 40, 40), (20, 30), {"resnet18": 2e-5}),
    ],
)
def test_recipes_of_the_paper(dataset, epochs, milestones, rates):
    study = BenchmarkDataset.named(dataset)
    architectures = {"vgg16": ("sgd", 0.005), "resnet18": ("sgd", 0.005), "efficientnet_b0": ("adam", 0.001)}
    for (model, (optimizer, rate)), n in zip(architectures.items(), epochs):
        steps = {"optimizer": optimizer, "momentum": 0.9 if optimizer == "sgd" else 0.0}
        training = {**steps, "learning_rate": rate, "batch_size": 32, "seed": 3}
        assert recipe_for(study, model, seed=3) == Pretraining(epochs=n, milestones=milestones, **training)
        correction = FineTuning(**steps, learning_rate=rates.get(model, 1e-4), epochs=10, seed=2)
        assert tuning_for(study, model, seed=2) == correction
        assert tuning_for(study, model, momentum=0.0).momentum == 0


class Faces(BenchmarkDataset):
    title, artifacts, needs_root = "Faces", ("collar",), False
    recipe = Recipe(epochs={"vgg16": 40, "resnet18": 40}, milestones=(20,), fresh_rates={"resnet18": 0.002})

    def data(self, model: str) -> BiasedData:
        raise NotImplementedError


class Table(Faces):
    title, recipe = "Table", Recipe(epochs={})  # none is published


def test_random_weights_take_the_datasets_rate_where_it_has_one() -> None:
    expected = Pretraining(optimizer="adam", learning_rate=0.002, epochs=40, batch_size=32)
    assert recipe_for(Faces, "resnet18", fresh=True) == expected
    assert recipe_for(Faces, "vgg16", fresh=True) == recipe_for(Faces(), "vgg16")
    assert recipe_for(Faces, "demo", epochs=2).epochs == 2


@pytest.mark.parametrize(
    ("study", "model", "epochs", "fragment"),
    [
        (Faces, "demo", None, r"Faces has no recipe for 'demo'\. Known: vgg16, resnet18"),
        (Faces, "resnet81", 1, "Did you mean 'resnet18'"),
        (Table, "vgg16", None, r"Table has no recipe for 'vgg16'\. Give the number of epochs\."),
    ],
)
def test_a_model_without_a_recipe_is_rejected(study, model, epochs, fragment):
    with pytest.raises(OptionError, match=fragment):
        recipe_for(study, model, epochs=epochs)


# Files


@pytest.mark.parametrize(("root", "name"), [(name, name) for name in BUILDERS], indirect=["root"])
def test_parts_are_disjoint_and_the_seed_decides(root: Path, name: str) -> None:
    if name == "table":
        table = root / "labels.csv"
        table.write_text(table.read_text().replace("split", "unused"))
    one, same, other = (read(root, name, seed=seed) for seed in (0, 0, 1))
    assert fingerprints(one) == fingerprints(same)
    for old, new in zip(one.parts[:2], other.parts[:2]):  # ImageNet's test set is fixed
        assert not np.array_equal(old.ids, new.ids)
    ids = np.concatenate([part.ids for part in one.parts])
    assert sorted(ids) == sorted(set(one.source.ids))
    assert [len(part) / len(ids) for part in one.parts] == pytest.approx([0.8, 0.1, 0.1], abs=0.05)


@pytest.mark.parametrize(("root", "name"), [(name, name) for name in BUILDERS], indirect=["root"])
def test_a_damaged_image_is_an_error_or_recorded_and_the_others_stay(root: Path, name: str) -> None:
    before = read(root, name)
    path, bad = Path(before.source.paths[3]), before.source.ids[3]
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match=rf"{path.name} is not a readable image.*--skip-bad"):
        read(root, name)
    after = read(root, name, skip_bad=True)
    assert len(after.skipped) == 1
    assert path.name in after.skipped[0]
    for old, new in zip(before.parts, after.parts):
        assert np.array_equal(old.ids[old.ids != bad], new.ids)
        assert np.array_equal(old.image(int(np.flatnonzero(old.ids == new.ids[-1])[0])), new.image(len(new) - 1))
    poisoned = [set(study.data("vgg16").train.ids[study.data("vgg16").train.has_artifact]) for study in (before, after)]
    assert len(poisoned[0] ^ poisoned[1]) <= 2, "a bad image moves the artifact of one other at most"


@pytest.mark.parametrize(("root", "name"), [(name, name) for name in PAPER if name != "imagenet"], indirect=["root"])
def test_folders_may_be_nested_and_their_images_are_those_of_the_table(root: Path, name: str) -> None:
    study = read(root, name)
    before, first = fingerprints(study), Path(study.source.paths[0])
    folder = first.parent
    folder.rename(root / "inner")
    folder.mkdir()
    (root / "inner").rename(folder / folder.name)
    assert fingerprints(read(root, name)) == before
    shutil.copy(folder / folder.name / first.name, folder / folder.name / f"stray{first.suffix}")
    with pytest.raises(DataError, match=r"stray\.\w+ is not in the table: .*--skip-bad"):
        read(root, name)
    (folder / folder.name / first.name).unlink()
    skipped = read(root, name, skip_bad=True).skipped
    assert [Path(line.split(" ")[0]).stem for line in skipped] == ["stray", first.stem]


def replaced(file: str, old: str, new: str, *, count: int = -1) -> Callable[[Path], None]:
    """Return a change of a text file."""

    def change(root: Path) -> None:
        text = (root / file).read_text()
        assert old in text
        (root / file).write_text(text.replace(old, new, count))

    return change


def renamed(old: str, new: str) -> Callable[[Path], object]:
    return lambda root: (root / old).rename(root / new)


def emptied(folder: str, *, remove: bool = False) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        for path in (root / folder).iterdir():
            path.unlink()
        if remove:
            (root / folder).rmdir()

    return change


def flattened(root: Path) -> None:
    for path in [*(root / "val").glob("*/*.JPEG")]:
        path.rename(root / "val" / path.name)
    for path in [path for path in (root / "val").iterdir() if path.is_dir()]:
        path.rmdir()


def without_tench(root: Path) -> None:
    for part in ("train", "val"):
        (root / part / TENCH).rename(root / part / "n01440000")


def without_blonde_neckties(root: Path) -> None:
    lines = [attributes(row) if row % 12 else f"{face(row)} -1 -1 -1 1 -1" for row in range(FACES)]
    text = "\n".join([str(FACES), " ".join(ATTRIBUTES), *lines])
    (root / "list_attr_celeba.txt").write_text(text + "\n")


def marked(marks: list[str]) -> Callable[[Path], None]:
    """Mark the first image of ISIC's table otherwise."""

    def change(root: Path) -> None:
        header, first, *lines = (root / ISIC).read_text().splitlines()
        first = ",".join([first.partition(",")[0], *marks])
        (root / ISIC).write_text("\n".join([header, first, *lines]) + "\n")

    return change


ISIC, AGES = "ISIC_2019_Training_GroundTruth.csv", "boneage-training-dataset.csv"
FACE_LIST = "list_attr_celeba.txt"


@pytest.mark.parametrize(
    ("root", "change", "fragment"),
    [
        ("isic2019", marked(one_hot("UNK")), f"{ISIC} .*'ISIC_0000000'.*marks none"),
        ("isic2019", marked(["1.0", "1.0", *["0.0"] * 7]), f"{ISIC} .*'ISIC_0000000'.*marks MEL, NV"),
        ("isic2019", marked(["0.5", *["0.0"] * 8]), f"{ISIC} .*marks MEL"),
        ("isic2019", marked(["yes", *["0.0"] * 8]), f"{ISIC} has a mark that is not 0 or 1 .*'ISIC_0000000'"),
        ("bone_age", replaced(AGES, "boneage", "bone_age"), "has no column 'boneage'. Did you mean 'bone_age'"),
        ("bone_age", replaced(AGES, "1377,1,", "1377,1.5,"), "gives image '1377' the boneage '1.5': it is in whole"),
        ("bone_age", replaced(AGES, "1377,1,", "1377,,"), "gives image '1377' the boneage ''"),
        ("celeba", replaced(FACE_LIST, "120\n", "119\n", count=1), "announces '119' images .*, but lists 120"),
        ("celeba", replaced(FACE_LIST, "Blond_Hair", "Blonde_Hair"), r"no attribute 'Blond_Hair' .*'Blonde_Hair'\?"),
        ("celeba", replaced(FACE_LIST, attributes(6), f"{attributes(6)} 1"), "has 6 values for 000007.jpg, not 5"),
        ("celeba", replaced(FACE_LIST, attributes(1), f"{face(1)} -1 0 -1 -1 -1"), "of 000002.jpg is '0', not -1 or"),
        ("celeba", replaced(FACE_LIST, attributes(7), attributes(1)), "lists 000002.jpg more than once"),
        ("celeba", lambda root: (root / FACE_LIST).write_text(""), "has no attribute 'Blond_Hair'"),
        ("celeba", renamed(FACE_LIST, "attributes.txt"), "is missing, and Kaggle's list_attr_celeba.csv too"),
        ("celeba", without_blonde_neckties, "no training image is blonde with a necktie"),
        ("imagenet", emptied(f"val/{WEB_SITE}"), f"val/{WEB_SITE} has no image"),
        ("imagenet", emptied(f"val/{WEB_SITE}", remove=True), rf"Class {WEB_SITE} is in .*/train, but not in .*/val\."),
        ("imagenet", emptied(f"train/{WEB_SITE}", remove=True), rf"{WEB_SITE} is in .*/val, but not in .*/train\."),
        ("imagenet", without_tench, "train has 4 classes: it needs n01440764, the tench"),
        ("imagenet", flattened, "val has no class folders: its images belong in .*val/<wnid>/"),
        *((name, renamed(folder, f"{folder}s"), rf"no folder '{folder}'\. Did you mean '{folder}s'") for name, folder in
          (("isic2019", "ISIC_2019_Training_Input"), ("bone_age", "boneage-training-dataset"),
           ("celeba", "img_align_celeba"), ("imagenet", "train"))),
    ],
    indirect=["root"],
)  # fmt: skip
def test_files_that_make_no_sense_are_rejected_with_their_path(
    root: Path, change: Callable[[Path], object], fragment: str, request: pytest.FixtureRequest
) -> None:
    change(root)
    with pytest.raises(DataError, match=fragment) as error:
        read(root, request.node.callspec.params["root"])
    assert re.search(re.escape(str(root)), str(error.value))


@pytest.mark.parametrize("root", ["imagenet"], indirect=True)
def test_a_class_whose_images_are_all_bad_is_an_error_even_when_bad_ones_are_skipped(root: Path) -> None:
    for path in (root / "val" / WEB_SITE).iterdir():
        path.write_bytes(b"")
    with pytest.raises(DataError, match=rf"val/{WEB_SITE} has no image left that can be used"):
        read(root, "imagenet", skip_bad=True)
