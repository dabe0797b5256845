"""What all studies promise, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hansfree.data.artifacts import LSB
from hansfree.data.biased import insert_bias
from hansfree.data.lesions import SyntheticLesions
from hansfree.errors import DataError, OptionError
from hansfree.paper.dataset import PUBLISHED_METRICS, BenchmarkDataset, find_folder, unlisted_files
from hansfree.paper.embedded import Synthetic

SOURCES = [SyntheticLesions(16, size=16, start=start) for start in (0, 16, 32)]


@pytest.mark.parametrize("study", BenchmarkDataset.members().values(), ids=lambda study: study.name)
def test_every_member_says_what_it_is_and_what_it_needs(study):
    assert study.title
    assert study.artifacts
    assert study.__doc__
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


def test_one_member_is_taken_where_none_is_named():
    assert (
        [study for study in BenchmarkDataset.members().values() if study.is_default]
        == [BenchmarkDataset.default()]
        == [Synthetic]
    )


def test_a_study_of_drawn_images_has_nothing_to_read_or_remark():
    study = Synthetic()
    assert (study.skipped, study.remarks, study.starts_clean) == ([], [], False)
    assert study.published_labels("vgg16") == ()
    assert study.flags() == {}


def test_a_share_without_images_is_refused():
    with pytest.raises(DataError, match="1 % of the 4 training images of class 'smooth-even' is 0 images"):
        insert_bias(SOURCES, LSB(), biased_class=0, share=0.01)


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
    recipe = BenchmarkDataset.named(dataset).recipe
    assert recipe.epochs == dict(zip(("vgg16", "resnet18", "efficientnet_b0"), epochs))
    assert (recipe.milestones, recipe.correction_rates) == (milestones, rates)


def test_a_folder_is_found_also_when_it_is_nested_once(tmp_path):
    (tmp_path / "flat").mkdir()
    (tmp_path / "deep" / "deep").mkdir(parents=True)
    assert find_folder(tmp_path, "flat") == tmp_path / "flat"
    assert find_folder(tmp_path, "deep") == tmp_path / "deep" / "deep"
    with pytest.raises(DataError, match=r"has no folder 'flut'\. Did you mean 'flat'"):
        find_folder(tmp_path, "flut")
    with pytest.raises(DataError, match=r"There is no folder .*nowhere"):
        find_folder(tmp_path / "nowhere", "flat")


def test_only_images_count_as_unlisted(tmp_path):
    for name in ("a.jpg", "b.jpg", "LICENSE.txt"):
        (tmp_path / name).touch()
    assert unlisted_files(tmp_path, ["a.jpg"]) == [f"{tmp_path / 'b.jpg'} is not in the table."]
    assert unlisted_files(tmp_path, ["a.jpg", "b.jpg"]) == []
