"""Each CAV solver against scikit-learn's own grid search over the same model, penalties and folds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.speed.measures import Measure, ratio
from benchmarks.speed.race import Outcome, Race
from benchmarks.speed.subject import Subject
from benchmarks.speed.timing import Side, take_turns, timed
from hansfree._internal.progress import Progress
from hansfree.cavs import CAV
from hansfree.cavs.regularised import PENALTIES

_FOLDS = 5


class CAVRace(Race, name="cav"):
    """One process on either side, the same tolerances and iterations, on drawn features of classes that overlap.

    The signal-CAV is not here: it is a difference of two means and has nothing to search.
    """

    per_model = False

    def measure(self, subject: Subject, progress: Progress) -> Outcome:
        """Fit every solver on the same samples."""
        samples, channels = subject.sizes.samples, subject.sizes.channels
        rng = np.random.default_rng(0)
        has_artifact = np.arange(samples) % 2 == 0
        features = rng.normal(size=(samples, channels)) + np.outer(has_artifact, rng.normal(scale=0.1, size=channels))
        sides: dict[str, Side] = {}
        for name, search in SEARCHES.items():
            sides[f"ours {name}"] = timed(lambda name=name: CAV.named(name)().fit(features, has_artifact))  # type: ignore[misc]
            sides[f"sklearn {name}"] = timed(lambda search=search: _search(search(), features, has_artifact))  # type: ignore[misc]
        seconds = take_turns(sides, turns=subject.sizes.turns, progress=progress, label="cav")
        measures: list[Measure] = [
            ratio(f"cav.{name}_over_gridsearch", seconds[f"ours {name}"], seconds[f"sklearn {name}"])
            for name in SEARCHES
        ]
        return Outcome(
            tuple(measures),
            {"samples": samples, "channels": channels, "penalties": len(PENALTIES), "folds": _FOLDS},
            ("cav: the grid search chooses the SVM by accuracy, the others by the loss that ours chooses by.",),
        )


def _ridge() -> Any:
    from sklearn.linear_model import Ridge

    return Ridge(), {"alpha": PENALTIES}, "neg_mean_squared_error"


def _lasso() -> Any:
    from sklearn.linear_model import Lasso

    return Lasso(tol=1e-3, max_iter=300), {"alpha": PENALTIES}, "neg_mean_squared_error"


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(tol=1e-5, max_iter=200), {"C": 1 / PENALTIES}, "neg_log_loss"


def _svm() -> Any:
    from sklearn.svm import SVC

    solver = SVC(kernel="linear", class_weight="balanced", tol=1e-3, max_iter=50_000)
    return solver, {"C": 1 / PENALTIES}, "accuracy"


SEARCHES: dict[str, Callable[[], Any]] = {"svm": _svm, "ridge": _ridge, "lasso": _lasso, "logistic": _logistic}


def _search(parts: Any, features: np.ndarray, has_artifact: np.ndarray) -> None:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    solver, grid, scoring = parts
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # as on our side
        GridSearchCV(solver, grid, scoring=scoring, cv=folds).fit(features, has_artifact.astype(np.int64))
