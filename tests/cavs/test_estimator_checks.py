"""Scikit-learn's own contract, for every CAV that is registered."""

from __future__ import annotations

from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from hansfree.cavs import CAV


def _for_checks(cav: type[CAV]) -> CAV:
    """Scikit-learn's checks use as few as three samples of a class, so they run with two folds."""
    options: dict[str, Any] = {"folds": 2} if "folds" in cav().get_params() else {}
    return cav(**options)


@parametrize_with_checks([_for_checks(cav) for cav in CAV.members().values()])
def test_scikit_learn_contract(estimator: CAV, check: Any) -> None:
    check(estimator)
