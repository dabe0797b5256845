"""What all datasets of files promise: checks of all files, splits by seed, images that are left out."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from hansfree.data.biased import SETS
from hansfree.errors import DataError
from hansfree.paper.dataset import BenchmarkDataset
from tests.paper.conftest import BUILDERS

IN_ONE_FOLDER = ("isic2019", "bone_age", "celeba")


def opened(root: Path, name: str, **options: object) -> BenchmarkDataset:
    return BenchmarkDataset.named(name)(root, size=32, **options)  # type: ignore[arg-type]


def fingerprints(study: BenchmarkDataset) -> list[str]:
    return [getattr(study.data("vgg16"), name).fingerprint for name in SETS]


@pytest.mark.parametrize(("root", "name"), [(name, name) for name in BUILDERS], indirect=["root"])
def test_parts_are_disjoint_and_the_seed_decides(root: Path, name: str) -> None:
    if name == "table":
        table = root / "labels.csv"
        table.write_text(table.read_text().replace("split", "unused"))
    one, same, other = (opened(root, name, seed=seed) for seed in (0, 0, 1))
    assert fingerprints(one) == fingerprints(same)
    for old, new in zip(one.parts[:2], other.parts[:2]):  # ImageNet's test set is fixed
        assert not np.array_equal(old.ids, new.ids)
    ids = np.concatenate([part.ids for part in one.parts])
    assert sorted(ids) == sorted(set(one.source.ids))
    assert [len(part) / len(ids) for part in one.parts] == pytest.approx([0.8, 0.1, 0.1], abs=0.05)


@pytest.mark.parametrize(("root", "name"), [(name, name) for name in BUILDERS], indirect=["root"])
def test_a_damaged_image_is_an_error_or_recorded_and_the_others_stay(root: Path, name: str) -> None:
    before = opened(root, name)
    path, bad = Path(before.source.paths[3]), before.source.ids[3]
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match=rf"{path.name} is not a readable image.*--skip-bad"):
        opened(root, name)
    after = opened(root, name, skip_bad=True)
    assert len(after.skipped) == 1
    assert path.name in after.skipped[0]
    for old, new in zip(before.parts, after.parts):
        assert np.array_equal(old.ids[old.ids != bad], new.ids)
        assert np.array_equal(old.image(int(np.flatnonzero(old.ids == new.ids[-1])[0])), new.image(len(new) - 1))
    poisoned = [set(study.data("vgg16").train.ids[study.data("vgg16").train.has_artifact]) for study in (before, after)]
    assert len(poisoned[0] ^ poisoned[1]) <= 2, "a bad image moves the artifact of one other at most"


@pytest.mark.parametrize(("root", "name"), [(name, name) for name in BUILDERS], indirect=["root"])
def test_missing_folders_are_named(root: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"There is no folder .*nowhere"):
        opened(root / "nowhere", name)
    if name != "table":
        folder = root / Path(opened(root, name).source.paths[0]).relative_to(root).parts[0]
        folder.rename(root / f"{folder.name}s")
        with pytest.raises(DataError, match=rf"no folder '{folder.name}'\. Did you mean '{folder.name}s'"):
            opened(root, name)


@pytest.mark.parametrize(("root", "name"), [(name, name) for name in IN_ONE_FOLDER], indirect=["root"])
def test_folders_may_be_nested_and_their_pictures_are_those_of_the_table(root: Path, name: str) -> None:
    before = fingerprints(opened(root, name))
    first = Path(opened(root, name).source.paths[0])
    folder = first.parent
    folder.rename(root / "inner")
    folder.mkdir()
    (root / "inner").rename(folder / folder.name)
    assert fingerprints(opened(root, name)) == before
    shutil.copy(folder / folder.name / first.name, folder / folder.name / f"stray{first.suffix}")
    with pytest.raises(DataError, match=r"stray\.\w+ is not in the table: .*--skip-bad"):
        opened(root, name)
    (folder / folder.name / first.name).unlink()
    skipped = opened(root, name, skip_bad=True).skipped
    assert [Path(line.split(" ")[0]).stem for line in skipped] == ["stray", first.stem]


@pytest.mark.parametrize("root", ["bone_age"], indirect=True)
def test_all_parts_need_an_image_that_can_be_read(root: Path) -> None:
    study = opened(root, "bone_age")
    train = set(study.parts[0].ids)
    for path, row in zip(study.source.paths, study.source.ids):
        if row not in train:
            Path(path).write_bytes(b"")
    with pytest.raises(DataError, match=r"training-dataset\.csv has no validation image that can be read"):
        opened(root, "bone_age", skip_bad=True)
