"""The study of printed text: its sets, and a timestamp that leaks into one class."""

from __future__ import annotations

import numpy as np

from hansfree.data.printed import PrintedSkin
from hansfree.paper.dataset import BenchmarkDataset
from hansfree.paper.embedded import PrintedText


class SmallStudy(PrintedText):
    n_train, n_val, n_test = 36, 18, 27


def test_the_study_is_found_by_its_name_and_large_enough_to_judge_each_class():
    study = BenchmarkDataset.named("synthetic-text")()
    assert isinstance(study, PrintedText)
    data = study.data("demo")
    assert np.bincount(data.test_clean.labels).min() >= 75
    assert np.bincount(data.val_clean.labels).min() >= 25
    assert data.biased_class not in PrintedSkin.text_classes


def test_the_sets_of_the_study_share_no_image():
    data = SmallStudy(seed=4).data("demo")
    ids = [set(part.ids.tolist()) for part in (data.train, data.val_clean, data.test_clean)]
    assert [len(part) for part in ids] == [36, 18, 27]
    assert len(set.union(*ids)) == 36 + 18 + 27
    assert len({part.fingerprint for part in (data.train, data.clean_train, data.val_clean, data.val_biased)}) == 4


def test_the_timestamp_leaks_into_half_of_one_class():
    data = SmallStudy().data("demo")
    inside = data.train.labels == data.biased_class
    assert data.train.has_artifact[inside].mean() == 0.5
    assert not data.train.has_artifact[~inside].any()
    assert data.clean_train is not None
    assert not data.clean_train.has_artifact.any()
    assert np.array_equal(data.clean_train.ids, data.train.ids)
    assert data.is_localized


def test_a_stamp_changes_only_its_mask():
    data = SmallStudy(size=48).data("demo")
    for index in range(9):
        clean, biased = data.test_clean.pixels(index)[0], data.test_biased.pixels(index)[0]
        mask = data.test_biased.pixels(index)[1]
        assert clean.shape == (48, 48, 3)
        assert mask.any()
        assert np.array_equal(clean[~mask], biased[~mask])
        assert not np.array_equal(clean, biased)
