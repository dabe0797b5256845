"""The embedded datasets: four shortcuts with one biased training set and clean images in common; printed text."""

from __future__ import annotations

import numpy as np
import pytest

from hansfree.data.artifacts import Artifact
from hansfree_paper.embedded import PrintedText, Synthetic
from hansfree_paper.printed import PrintedSkin


class Small(Synthetic):
    n_base, n_train, n_val, n_test = 120, 80, 24, 40


@pytest.mark.parametrize("artifact", Synthetic.artifacts)
def test_each_artifact_leaks_into_a_class_of_its_own(artifact: str) -> None:
    data = Small(artifact=artifact, size=32).data("vgg16")
    label = Synthetic.artifacts.index(artifact)
    assert (data.biased_class, data.artifact) == (label, artifact)
    assert data.is_localized == Artifact.named(artifact).localized
    assert (data.is_inserted, data.has_masks) == (True, True)
    assert set(data.train.labels[data.train.has_artifact]) == {label}
    assert data.learned.has_artifact.sum() == int(Small.share * 30 + 0.5)
    assert 0 < data.train.has_artifact.sum() < data.learned.has_artifact.sum()
    assert data.train.pixels(int(np.flatnonzero(data.train.has_artifact)[0]))[1].any()
    assert not np.array_equal(data.test_clean.pixels(0)[0], data.test_biased.pixels(0)[0])
    assert data.train_biased is not None  # pairs: training images without any artifact
    rows = np.flatnonzero(np.isin(data.train.ids, data.train_biased.ids))
    assert 0 < len(rows) == len(data.train_biased) < (~data.train.has_artifact).sum()
    for place in (0, len(rows) - 1):
        image, mask = data.train_biased.pixels(place)
        before, _ = data.train.pixels(int(rows[place]))
        np.testing.assert_array_equal(before[~mask], image[~mask])
        assert not np.array_equal(before, image)


def test_all_artifacts_have_one_biased_model_one_reference_and_clean_images_in_common() -> None:
    every = [Small(artifact=artifact, size=32).data("demo") for artifact in Synthetic.artifacts]
    assert len({data.learned.pixel_fingerprint for data in every}) == 1
    for name, many in (
        ("train", True), ("clean_train", False), ("val_clean", False), ("test_clean", False), ("val_biased", True),
        ("test_biased", True),
    ):  # fmt: skip
        assert len({getattr(data, name).fingerprint for data in every}) == (len(every) if many else 1), name


def test_no_image_is_in_two_parts_and_corrections_see_a_part_of_what_the_model_learned_from() -> None:
    data = Small(size=32).data("demo")
    parts = [set(getattr(data, name).ids.tolist()) for name in ("learned", "val_clean", "test_clean")]
    assert [len(part) for part in parts] == [120, 24, 40]
    assert sum(map(len, parts)) == len(set.union(*parts))
    assert data.clean_train is not None
    assert not data.clean_train.has_artifact.any()
    assert np.array_equal(data.clean_train.ids, data.learned.ids)
    assert len(data.train) == 80
    assert np.array_equal(data.train.ids, data.learned.ids[:80])
    assert np.array_equal(data.train.has_artifact, data.learned.has_artifact[:80])
    for index in (0, 79):
        for ours, theirs in zip(data.train.pixels(index), data.learned.pixels(index)):
            assert np.array_equal(ours, theirs)


def test_printed_text_is_large_enough_to_judge_each_class() -> None:
    data = PrintedText().data("demo")
    assert np.bincount(data.test_clean.labels).min() >= 75
    assert np.bincount(data.val_clean.labels).min() >= 25
    assert data.biased_class not in PrintedSkin.text_classes
