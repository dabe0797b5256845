from __future__ import annotations

import logging

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import Lasso, LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

from hansfree.cavs import SVMCAV, LassoCAV, LogisticCAV, RidgeCAV
from hansfree.cavs.regularised import PENALTIES, PenalisedCAV
from hansfree.errors import DataError, OptionError
from tests.cavs.samples import activations

SOLVERS = [RidgeCAV, LassoCAV, LogisticCAV, SVMCAV]


def balance(t):
    return np.where(t == 1, len(t) / (2 * sum(t == 1)), len(t) / (2 * sum(t == 0)))


# The objectives of the paper's appendix with squared norms, on scikit-learn's scale of the penalty.
OBJECTIVES = {
    RidgeCAV: lambda X, t, h, b, penalty: sum((t - X @ h - b) ** 2) + penalty * sum(h**2),
    LassoCAV: lambda X, t, h, b, penalty: sum((t - X @ h - b) ** 2) / (2 * len(t)) + penalty * sum(abs(h)),
    LogisticCAV: lambda X, t, h, b, penalty: sum(np.logaddexp(0, -(2 * t - 1) * (X @ h + b))) + penalty * sum(h**2) / 2,
    SVMCAV: lambda X, t, h, b, penalty: (
        sum(balance(t) * np.maximum(0, 1 - (2 * t - 1) * (X @ h + b))) + penalty * sum(h**2) / 2
    ),
}
LOSSES = {  # of held-out samples, by which the penalty is chosen
    RidgeCAV: lambda t, y: np.mean((t - y) ** 2),
    LassoCAV: lambda t, y: np.mean((t - y) ** 2),
    LogisticCAV: lambda t, y: log_loss(t, 1 / (1 + np.exp(-y))),
    SVMCAV: lambda t, y: np.mean(balance(t) * np.maximum(0, 1 - (2 * t - 1) * y)),
}
BORDER = {RidgeCAV: 0.5, LassoCAV: 0.5, LogisticCAV: 0.0, SVMCAV: 0.0}


def centred(**options):
    X, has_artifact = activations(size=1.0, **options)
    return X - X.mean(0), has_artifact


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("penalty", [10.0, 1.0, 0.01])
def test_solutions_minimise_the_objective(solver, penalty):
    X, has_artifact = centred(n=30, channels=3)
    t = has_artifact.astype(float)
    (h,), (b,) = solver()._path(X, has_artifact, np.array([penalty]))
    b = b + BORDER[solver]

    def objective(p):
        return OBJECTIVES[solver](X, t, p[:-1], p[-1], penalty)

    found = objective(np.append(h, b))
    starts = [np.append(h, b), np.zeros(4)]
    exact = {"xtol": 1e-8, "ftol": 1e-12}
    best = min(minimize(objective, start, method="Powell", options=exact).fun for start in starts)
    assert found <= best * (1 + 2e-3)


@pytest.mark.parametrize("channels", [5, 80])
def test_ridge_equals_the_normal_equations_for_all_penalties(channels):
    X, has_artifact = centred(n=40, channels=channels)
    bit = has_artifact.astype(float)
    weights, intercepts = RidgeCAV()._path(X, has_artifact, PENALTIES)
    for penalty, h, b in zip(PENALTIES, weights, intercepts):
        expected = np.linalg.solve(X.T @ X + penalty * np.eye(channels), X.T @ (bit - bit.mean()))
        np.testing.assert_allclose(h, expected, rtol=1e-5, atol=1e-8)
        assert b + 0.5 == pytest.approx(bit.mean())


@pytest.mark.parametrize(
    ("solver", "peer"),
    [
        (RidgeCAV, lambda penalty: Ridge(alpha=penalty)),
        (LassoCAV, lambda penalty: Lasso(alpha=penalty, tol=1e-8, max_iter=100_000)),
        (LogisticCAV, lambda penalty: LogisticRegression(C=1 / penalty, tol=1e-8, max_iter=10_000)),
        (SVMCAV, lambda penalty: SVC(kernel="linear", C=1 / penalty, class_weight="balanced", tol=1e-5)),
    ],
)
def test_choice_direction_and_border_equal_scikit_learn_s(solver, peer):
    """The whole procedure once more with plain scikit-learn on uncentred features."""
    X, has_artifact = activations(size=0.7, n=90)
    cav = solver(folds=3, seed=5).fit(X, has_artifact)
    target = has_artifact.astype(float)
    folds = list(StratifiedKFold(3, shuffle=True, random_state=5).split(X, has_artifact))
    middle = slice(2, 6)  # the peers do not converge on all of the grid in reasonable time
    for penalty, loss in zip(PENALTIES[middle], cav.cv_loss_[middle]):
        held_out = []
        for train, test in folds:
            fitted = peer(penalty).fit(X[train], target[train])
            outputs = X[test] @ fitted.coef_.ravel() + np.ravel(fitted.intercept_)[0]
            held_out.append(LOSSES[solver](target[test], outputs))
        assert loss == pytest.approx(np.mean(held_out), rel=0.01)
    assert cav.best_penalty_ == PENALTIES[np.argmin(cav.cv_loss_)]
    reference = peer(cav.best_penalty_).fit(X, target)
    h = reference.coef_.ravel()
    assert cav.direction_ @ h / np.linalg.norm(h) > 0.999
    decision = (X @ h + float(np.ravel(reference.intercept_)[0]) - BORDER[solver]) / np.linalg.norm(h)
    np.testing.assert_allclose(cav.decision_function(X), decision, atol=0.05 * decision.std())


@pytest.mark.parametrize("best", [0, 4])
def test_lasso_that_leaves_nothing_takes_the_strongest_penalty_that_leaves_something(monkeypatch, best):
    X, has_artifact = activations()
    monkeypatch.setattr(LassoCAV, "_held_out_loss", lambda *_: 1 - np.eye(len(PENALTIES))[best])
    cav = LassoCAV().fit(X, has_artifact)
    bit = has_artifact - has_artifact.mean()
    vanishing = np.abs((X - X.mean(0)).T @ bit).max() / len(X)  # from this penalty on, all weights are zero
    assert cav.best_penalty_ == PENALTIES[vanishing > PENALTIES][0]


def test_lasso_on_features_too_small_for_the_grid_says_so():
    X, has_artifact = activations()
    with pytest.raises(DataError, match="too small for this grid"):
        LassoCAV().fit(1e-7 * X, has_artifact)


@pytest.mark.parametrize("solver", SOLVERS)
def test_fewer_samples_than_folds_is_an_error_that_names_the_way_out(solver):
    X, has_artifact = activations(n=12)  # four with the artifact
    with pytest.raises(DataError, match=r"5 folds and n_samples=4 with the artifact.*set folds to at most 4"):
        solver().fit(X, has_artifact)
    with pytest.raises(DataError, match="n_samples=4 without the artifact"):
        solver().fit(X, ~has_artifact)
    solver(folds=4).fit(X, has_artifact)


@pytest.mark.parametrize("options", [{"folds": 1}, {"folds": 2.5}, {"seed": -1}, {"seed": "x"}])
def test_bad_options_are_errors(options):
    with pytest.raises(OptionError, match=next(iter(options))):
        RidgeCAV(**options).fit(*activations())


def test_svm_of_unequal_overlapping_classes_does_not_collapse():
    rng = np.random.default_rng(0)
    X, has_artifact = rng.normal(size=(200, 4)), np.arange(200) % 10 == 0
    X[has_artifact, 0] += 1.0
    for penalty in (100.0, 10.0):
        (plain,) = SVC(kernel="linear", C=1 / penalty, tol=1e-5).fit(X, has_artifact).coef_
        (h,), _ = SVMCAV()._path(X - X.mean(0), has_artifact, np.array([penalty]))
        assert np.linalg.norm(plain) < 0.01 * np.linalg.norm(h)  # what the paper's unweighted loss would give
        assert h[0] / np.linalg.norm(h) > 0.7


def test_weights_against_the_class_means_are_turned_and_reported(caplog):
    class Wrong(PenalisedCAV):
        def _path(self, X, has_artifact, penalties):
            return np.tile(-np.eye(6)[0], (len(penalties), 1)), np.full(len(penalties), 99.0)

        def _loss(self, outputs, has_artifact):
            return np.ones(outputs.shape[1])

    X, has_artifact = activations()
    with caplog.at_level(logging.WARNING, logger="hansfree"):
        cav = Wrong().fit(X, has_artifact)
    assert "other way round" in caplog.text
    np.testing.assert_allclose(cav.direction_, np.eye(6)[0])
    assert cav.scale_ > 0
    assert cav.score(X, has_artifact) > 0.7
