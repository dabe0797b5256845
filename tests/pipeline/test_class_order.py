"""A wrong class order is reported with the order that fits; a model that guesses is too, and a biased one is not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hansfree.data.artifacts import Timestamp
from hansfree.data.examples import ImageDataset
from hansfree.data.insertion import WithArtifact
from hansfree.data.lesions import SyntheticLesions
from hansfree.pipeline.class_order import assess_class_order, check_class_order

NAMES = ("a", "b", "c", "d")


def answered(order: tuple[int, ...], *, right: float, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Return answers and labels of a model whose output ``j`` means the class ``order[j]``."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) // 3 % len(order)
    meant = np.where(rng.random(n) < right, labels, rng.integers(len(order), size=n))
    return np.argsort(order)[meant], labels


@pytest.mark.parametrize(
    ("order", "right", "sentence"),
    [
        ((2, 0, 3, 1), 0.9, "[c, a, d, b] would give 89.6 %."),
        ((0, 2, 1, 3), 0.9, "[a, c, b, d] would give"),
        ((0, 1, 2, 3), 0.08, "Check that the weights are trained"),
        ((0, 1, 2, 3), 1.0, None),
        ((0, 1, 2, 3), 0.8, None),
        ((0, 1, 2, 3), 0.3, None),
    ],
)
def test_the_order_of_a_model(order: tuple[int, ...], right: float, sentence: str | None) -> None:
    warning = assess_class_order(*answered(order, right=right), NAMES)
    assert (warning is None) == (sentence is None)
    if warning is not None and sentence is not None:
        assert sentence in warning.sentence
        assert warning.is_order == ("would give" in sentence)


def test_a_shortcut_is_no_wrong_order() -> None:
    answers, labels = answered((0, 1, 2, 3), right=0.8)
    answers[(labels == 1) & (np.arange(len(labels)) % 2 == 0)] = 0
    assert assess_class_order(answers, labels, NAMES) is None
    labels = np.arange(60) % 2  # the strongest: without the artifact the model never predicts the biased class
    warning = assess_class_order(np.zeros_like(labels), labels, ("benign", "melanoma"))
    assert warning is not None
    assert not warning.is_order


class Knowing(nn.Module):
    """A model that knows every image of a set by heart, and has its classes in an order of its own."""

    def __init__(self, images: ImageDataset, order: tuple[int, ...]) -> None:
        super().__init__()
        self.outputs = {self.key(images[i].image): order.index(images[i].label) for i in range(len(images))}

    @staticmethod
    def key(image: Tensor) -> float:
        return float(image.double().sum())

    def forward(self, images: Tensor) -> Tensor:
        return torch.eye(4)[[self.outputs[self.key(image)] for image in images]]


def test_the_check_before_a_run_uses_some_images_of_every_class() -> None:
    lesions = WithArtifact(SyntheticLesions(150, size=32), Timestamp(), share=0)
    found = check_class_order(Knowing(lesions, (0, 1, 2, 3)), lesions)
    assert found.doubt is None
    assert found.sentence == "a balanced accuracy of 100.0 % on 128 clean validation images"
    a, b, c, d = lesions.class_names
    doubt = check_class_order(Knowing(lesions, (1, 0, 3, 2)), lesions).doubt
    assert doubt is not None
    assert f"[{b}, {a}, {d}, {c}] would give 100.0 %" in doubt.sentence
