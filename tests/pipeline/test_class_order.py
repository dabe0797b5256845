"""Classes in the wrong order are told, with the order that fits; so is one that guesses, and a biased model is not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hansfree.data.artifacts import Timestamp
from hansfree.data.examples import ImageDataset
from hansfree.data.insertion import WithArtifact
from hansfree.data.lesions import SyntheticLesions
from hansfree.metrics.base import NO_PREDICTION
from hansfree.pipeline.class_order import assess_class_order, check_class_order

NAMES = ("a", "b", "c", "d")


def answered(order: tuple[int, ...], *, right: float, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Return answers and labels of a model whose output ``j`` means the class ``order[j]``."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) // 3 % len(order)
    meant = np.where(rng.random(n) < right, labels, rng.integers(len(order), size=n))
    return np.argsort(order)[meant], labels


def sentence_on(answers: np.ndarray, labels: np.ndarray, names: Sequence[str] = NAMES) -> str:
    doubt = assess_class_order(answers, labels, names)
    assert doubt is not None
    return doubt.sentence


def test_another_order_that_fits_is_named() -> None:
    told = sentence_on(*answered((2, 0, 3, 1), right=0.9))
    assert told.startswith("The original model has a balanced accuracy of ")
    assert "(chance level 25.0 %). Most likely data.classes is not in the order of the model's outputs" in told
    assert "[c, a, d, b] would give 89.6 %." in told


@pytest.mark.parametrize("right", [1.0, 0.8, 0.3])
def test_the_right_order_is_not_doubted(right: float) -> None:
    assert assess_class_order(*answered((0, 1, 2, 3), right=right), NAMES) is None


def test_one_that_the_shortcut_leads_astray_is_not_doubted() -> None:
    """Half of the images of one class are answered as the biased one: no order mends that."""
    answers, labels = answered((0, 1, 2, 3), right=0.8)
    answers[(labels == 1) & (np.arange(len(labels)) % 2 == 0)] = 0
    assert assess_class_order(answers, labels, NAMES) is None


def test_one_that_guesses_has_no_order_that_fits() -> None:
    """With few images of many classes some order always fits; on images that it was not made for it does not."""
    rng = np.random.default_rng(1)
    labels = np.repeat(np.arange(20), 4)
    names = [str(number) for number in range(20)]
    always_first = np.zeros_like(labels)
    for answers in (always_first, rng.permutation((labels + 1) % 20)):
        told = assess_class_order(answers, labels, names)
        assert told is None or not told.is_order
    assert "Check that the weights are trained" in sentence_on(always_first, labels, names)


def test_the_same_accuracy_is_doubted_with_few_images_and_not_with_many() -> None:
    """Where the interval reaches chance, nobody knows; of two classes 65 % may be what the data allow."""
    for n, is_doubted in ((40, True), (600, False)):
        labels = np.arange(n) % 2
        answers = np.where(np.arange(n) // 2 % 20 < 13, labels, 1 - labels)
        assert (assess_class_order(answers, labels, ("a", "b")) is not None) == is_doubted


def test_images_without_an_answer_do_not_count() -> None:
    answers, labels = answered((2, 0, 3, 1), right=0.9)
    answers[0] = NO_PREDICTION  # would be another class's cell, or none
    assert "[c, a, d, b] would give" in sentence_on(answers, labels)
    assert "has a balanced accuracy of 0.0 %" in sentence_on(np.full_like(labels, NO_PREDICTION), labels)


class Knowing(nn.Module):
    """A model that knows every image of a set by heart, and names its classes in an order of its own."""

    def __init__(self, images: ImageDataset, order: tuple[int, ...]) -> None:
        super().__init__()
        self.numbers = {self.key(images[i].image): order.index(images[i].label) for i in range(len(images))}
        self.asked = 0
        self.nothing = nn.Parameter(torch.zeros(1))

    @staticmethod
    def key(image: Tensor) -> float:
        return float(image.double().sum())

    def forward(self, images: Tensor) -> Tensor:
        self.asked += len(images)
        return torch.eye(4)[[self.numbers[self.key(image)] for image in images]]


def test_before_a_run_some_images_of_every_class_tell_the_order() -> None:
    lesions = WithArtifact(SyntheticLesions(150, size=32), Timestamp(), share=0)
    right, wrong = (Knowing(lesions, order) for order in ((0, 1, 2, 3), (1, 0, 3, 2)))
    asked = check_class_order(right, lesions)
    assert asked.doubt is None
    assert asked.sentence == "a balanced accuracy of 100.0 % on 128 clean validation images"
    a, b, c, d = lesions.class_names
    doubt = check_class_order(wrong, lesions).doubt
    assert doubt is not None
    assert doubt.is_order
    told = doubt.sentence
    assert "on 128 clean validation images" in told
    assert f"[{b}, {a}, {d}, {c}] would give 100.0 %" in told
