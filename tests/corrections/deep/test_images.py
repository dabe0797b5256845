"""Which images the task loss draws, and which groups are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from hansfree._internal.hashing import seeded
from hansfree.corrections.deep import Match, NetworkTuning, Transplant
from hansfree.corrections.deep.base import _systematic_sample, task_loss
from hansfree.corrections.deep.images import MAX_REPEATS, TrainingImages
from hansfree.errors import DataError
from tests.corrections.deep.examples import Drawn, SmallNet

SHORT = NetworkTuning(epochs=1, batch_size=16)


def dataset(labels: Any, artifacts: Any) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    labels, artifacts = torch.as_tensor(labels), torch.as_tensor(artifacts)
    return TensorDataset(torch.randn(len(labels), 3, 16, 16, generator=generator), labels, artifacts)


def known(labels: Any, artifacts: Any) -> TrainingImages:
    return TrainingImages(dataset(labels, artifacts))


def shares(images: TrainingImages, artifact: int = 0) -> list[float]:
    """Return the weighted share of an artifact in each class."""
    weights, has_artifact = images.task_weights(), images.artifacts[:, artifact]
    inside = [images.classes == label for label in np.unique(images.classes)]
    return [weights[rows & has_artifact].sum() / weights[rows].sum() for rows in inside]


def test_classes_count_the_same_and_a_confined_artifact_is_left_out() -> None:
    labels = np.repeat([0, 1, 2], [100, 50, 20])
    has_artifact = (labels == 1) & (np.arange(170) % 2 == 0)
    weights = known(labels, has_artifact).task_weights()
    assert (weights[has_artifact] == 0).all()
    assert (weights[~has_artifact] > 0).all()
    np.testing.assert_allclose([weights[labels == label].sum() for label in range(3)], 1 / 3)
    for label in range(3):
        assert np.ptp(weights[(labels == label) & ~has_artifact]) < 1e-15


def test_no_image_is_drawn_more_often_than_the_cap() -> None:
    labels = np.repeat([0, 1], [10, 1000])
    weights = known(labels, np.arange(1010) % 3 == 0).task_weights()
    assert weights.max() * np.count_nonzero(weights) <= MAX_REPEATS + 1e-9
    assert weights[labels == 0].sum() > 0.08


@pytest.mark.parametrize(
    ("shares", "is_spread"),
    [
        ((0.2, 0.8), True),
        ((0.04, 0.17), True),  # rare everywhere
        ((0.05, 0.5), False),  # as 5 % of wrong labels would look
        ((0.0, 0.5), False),
        ((0.01, 0.08), False),
    ],
)
def test_few_counterexamples_may_be_wrong_labels(shares: tuple[float, float], is_spread: bool) -> None:
    labels = np.repeat([0, 1], [1200, 400])
    places = np.concatenate([np.arange(1200) / 1200, np.arange(400) / 400])
    images = known(labels, places < np.array(shares)[labels])
    assert images.is_spread.tolist() == [is_spread]


def test_an_artifact_whose_images_carry_a_confined_one_is_not_spread() -> None:
    """All its images of class 1 are left out, so that nothing could be made independent."""
    labels = np.repeat([0, 1], 100)
    second = np.arange(200) % 4 == 0
    first = (labels == 1) & (np.arange(200) % 2 == 0)
    images = known(labels, np.stack([first, second], axis=1))
    assert images.is_spread.tolist() == [False, False]
    assert np.isfinite(images.task_weights()).all()


def test_artifact_labels_are_0_or_1() -> None:
    with pytest.raises(DataError, match="must be 0 or 1"):
        known(np.arange(40) % 2, np.where(np.arange(40) < 4, -1, 0))


def test_random_transforms_are_refused() -> None:
    class Random(TensorDataset):
        def __getitem__(self, index: int) -> Any:
            image, *rest = super().__getitem__(index)
            return image + torch.rand(1), *rest

    with pytest.raises(DataError, match="another image each time"):
        TrainingImages(Random(*dataset(np.arange(40) % 2, np.arange(40) % 2).tensors))


def test_several_artifacts_are_treated_each_on_its_own() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 300)
    confined = (labels == 1) & (rng.random(600) < 0.3)
    spread = rng.random(600) < np.where(labels == 0, 0.3, 0.7)
    images = known(labels, np.stack([confined, spread], axis=1))
    weights = images.task_weights()
    assert (weights[confined] == 0).all()
    assert ((weights > 0) == ~confined).all()
    first, second = shares(images, 1)
    assert first == pytest.approx(second, abs=1e-6)
    assert [(group.artifact, group.label) for group in images.groups()] == [(0, 1), (1, 0), (1, 1)]
    for group in images.groups():
        np.testing.assert_array_equal(images.classes[group.with_it], group.label)
        assert images.artifacts[group.with_it, group.artifact].all()
        assert not images.artifacts[group.without, group.artifact].any()


def test_each_image_is_drawn_its_expected_number_of_times() -> None:
    weights = np.array([0.0, 0.1, 0.25, 0.65])
    counts = np.stack(
        [np.bincount(_systematic_sample(weights, 10, np.random.default_rng(seed)), minlength=4) for seed in range(2000)]
    )
    assert (counts.sum(1) == 10).all()
    assert (np.abs(counts - 10 * weights) < 1).all()
    np.testing.assert_allclose(counts.mean(0), 10 * weights, atol=0.05)


def test_worker_processes_read_the_same_images() -> None:
    data = Drawn("patch", 40)
    rows = [np.array([1, 5, 5]), np.array([0])]
    here, there = (list(TrainingImages(data, workers=workers).batches(rows)) for workers in (0, 1))
    assert all(map(torch.equal, here, there))


def test_rows_of_labels() -> None:
    """Each combination counts as a class; the loss is that of every label."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, (240, 2))
    has_artifact = (labels == [1, 1]).all(1) & (rng.random(240) < 0.5)
    images = known(labels.astype(np.float32), has_artifact)
    weights = images.task_weights()
    for row in ([0, 0], [0, 1], [1, 0], [1, 1]):
        assert weights[(labels == row).all(1)].sum() == pytest.approx(0.25)
    assert (weights[has_artifact] == 0).all()
    logits = torch.randn(240, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p, y = logits.sigmoid(), torch.from_numpy(labels)
    expected = -(y * p.log() + (1 - y) * (1 - p).log()).mean()
    torch.testing.assert_close(task_loss(logits, torch.from_numpy(labels)), expected)
    with seeded(0):
        model = SmallNet(2).eval()
    fixed = Match(tuning=SHORT).correct(model, images.dataset)
    assert not torch.equal(fixed.fc.weight, model.fc.weight)


class OneLogit(SmallNet):
    """Returns one number per image, with or without an axis of its own."""

    def __init__(self, *, is_flat: bool) -> None:
        super().__init__(1)
        self.is_flat = is_flat

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits = super().forward(images)
        return logits.flatten() if self.is_flat else logits


@pytest.mark.parametrize("method", [Match, Transplant])
def test_one_logit_is_trained_the_same_with_and_without_an_axis_of_its_own(method: Any) -> None:
    data = Drawn("patch", 64)
    corrected = []
    for is_flat in (True, False):
        with seeded(0):
            model: nn.Module = OneLogit(is_flat=is_flat).eval()
        options = {} if method is Match else {"insert": lambda image, rng: 255 - image}
        corrected.append(method(tuning=SHORT, **options).correct(model, data))
    for own, other in zip(*(each.parameters() for each in corrected)):
        torch.testing.assert_close(own, other)
    assert not torch.equal(corrected[0].fc.weight, model.fc.weight)


LABELS = np.arange(40) % 2


@pytest.mark.parametrize("method", [Match, Transplant])
@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (TensorDataset(torch.zeros(4, 3, 8, 8), torch.zeros(4)), r"\(image, label, has_artifact\)"),
        (dataset(LABELS, np.zeros(40, bool)), "images with and without"),
        (dataset(LABELS, np.ones(40, bool)), "images with and without"),
        (dataset(LABELS, np.stack([LABELS == 1, np.zeros(40, bool)], axis=1)), "images with and without"),
        (dataset(LABELS, LABELS == 1), "no image without the artifact"),
        (dataset(LABELS, np.arange(40) == 1), "enough images both with and without"),
        (dataset(LABELS[:0], LABELS[:0] == 1), "no images in the dataset"),
        ([(torch.zeros(3, 8, 8), 0, False)], "torch dataset with a length, not list"),
    ],
    ids=["two elements", "none", "all", "none of the second", "a whole class", "too few", "empty", "a list"],
)
def test_unusable_data_is_refused_before_any_work(method: Any, data: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        method(tuning=SHORT).correct(SmallNet().eval(), data)
