"""DFR: a balanced logistic regression on what the last layer reads."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from hansfree.activations import Activations
from hansfree.corrections import DFR
from hansfree.corrections.dfr import empty_groups, group_weights
from hansfree.errors import DataError, SplitError
from hansfree.reasons import Reason, ReasonCode
from tests.corrections.examples import CASES, Case, MLPHead, TinyImages, collect

CASE = CASES["mlp"]


@pytest.fixture(scope="module")
def activations() -> Activations:
    return collect(CASE, CASE.model(), TinyImages(120, artifact="pairs"))


def test_it_is_scikit_learns_solution(activations: Activations) -> None:
    """The same objective, solved by other code: standardised inputs, weighted images, squared weights."""
    model, data, strength = CASE.model(), TinyImages(120, artifact="pairs"), 1e-2
    fixed = DFR(strength=strength).correct(model, activations)
    with torch.no_grad():
        inputs = model.classifier[:4](model.features(data.images).flatten(1)).double().numpy()
        logits = fixed(data.images)
    weights = group_weights(activations)
    center = weights @ inputs
    spread = np.sqrt(weights @ (inputs - center) ** 2)
    X = (inputs - center) / spread
    # scikit-learn's: C * sum of losses + half of the squared weights
    expected = LogisticRegression(C=1 / (2 * strength), tol=1e-10, max_iter=5000).fit(X, data.labels, weights)
    np.testing.assert_allclose(logits.softmax(1).numpy(), expected.predict_proba(X), atol=1e-4)
    own, other = model.state_dict(), fixed.state_dict()
    changed = {key for key in own if not torch.equal(own[key], other[key])}
    assert changed == {"classifier.4.weight", "classifier.4.bias"}


def test_empty_groups_are_a_warning_and_a_detail(activations: Activations, caplog: pytest.LogCaptureFixture) -> None:
    assert DFR().details(activations, clean=activations, biased=None) == ()
    leaking = collect(CASE, CASE.model(), TinyImages(60))
    with caplog.at_level(logging.WARNING):
        DFR().correct(CASE.model(), leaking)
    assert "No training image of class 1, 2 has the artifact. DFR balances the groups that are there." in caplog.text
    (detail,) = DFR().details(leaking, clean=leaking, biased=None)
    assert detail == Reason(ReasonCode.EMPTY_GROUPS, {"only_with": [], "only_without": [1, 2]})
    assert empty_groups(replace(leaking, has_artifact=leaking.labels == 2))["only_with"] == [2]


def test_what_cannot_be_balanced_is_refused(activations: Activations) -> None:
    with pytest.raises(DataError, match="which images have it"):
        DFR().correct(CASE.model(), replace(activations, has_artifact=None))
    with pytest.raises(DataError, match="no image of class 2"):
        DFR().correct(CASE.model(), replace(activations, labels=activations.labels % 2))


class Scaled(MLPHead):
    """Its logits are not those of the last layer."""

    def forward(self, images: Tensor) -> Tensor:
        return 3 * super().forward(images)


class Convolved(nn.Module):
    """Its last layer is no linear one."""

    def __init__(self) -> None:
        super().__init__()
        self.features, self.last = nn.Conv2d(3, 6, 4, stride=4), nn.Conv2d(6, 3, 2)

    def forward(self, images: Tensor) -> Tensor:
        return self.last(self.features(images)).flatten(1)


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        (Case(Scaled, "features.0", "features.0"), "are changed later"),
        (Case(Convolved, "features", "features"), "linear layer, but the last one of the model is 'last'"),
    ],
)
def test_another_last_layer_is_refused(case: Case, sentence: str) -> None:
    model = case.model()
    with pytest.raises(SplitError, match=sentence):
        DFR().correct(model, collect(case, model, TinyImages()))
