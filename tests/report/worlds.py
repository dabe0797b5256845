"""Small worlds in which models answer images: rows as a run writes them, computed and not made up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hansfree._internal.statistics import Interval
from hansfree.evaluation.results import Row, rows_of
from hansfree.metrics import (
    Answers,
    Difference,
    Evidence,
    NotAvailable,
    compare_answers,
    compare_classes,
    compare_probability_changes,
    compute_scores,
    find_unavailable,
    predict_classes,
    score_intervals,
)
from tests.report.conftest import META, choice

PULLS = {"original": 4.0, "vanilla": 3.5, "p-clarc": 1.5, "a-clarc": 1.0, "rr-clarc": 0.5}
CLASSES = ("naevus", "melanoma", "keratosis")
FIXED = dict.fromkeys(("vanilla", "p-clarc", "a-clarc"), choice(None, "has no strength to choose"))
SELECTION = FIXED | {"rr-clarc": choice(10.0, "best of 3 admissible strengths (0 rejected)")}


class World:
    """Test images of three classes, with an artifact that pulls models towards the first.

    Args:
        biased: How many images of each class have the artifact by nature; None inserts it into all.
    """

    def __init__(self, biased: tuple[int, ...] | None = None, *, clean: tuple[int, ...] = (160, 90, 60)) -> None:
        self.labels = np.repeat(np.arange(3), clean)
        self.labels_biased = None if biased is None else np.repeat(np.arange(3), biased)

    def logits(self, skill: float, pull: float, *, seed: int = 0) -> dict[str, np.ndarray]:
        """Return what a model answers that knows so much of the classes, and looks so much at the artifact."""
        rng = np.random.default_rng(seed)
        found = {}
        for name, labels in (("clean", self.labels), ("biased", self.labels_biased)):
            if labels is None:
                found[name] = found["clean"].copy()
            else:
                found[name] = rng.normal(size=(len(labels), 3))
                found[name][np.arange(len(labels)), labels] += skill
        found["biased"][:, 0] += pull
        return found

    def rows(self, method: str, logits: Mapping[str, np.ndarray], *, pull: float = 0.0) -> list[Row]:
        """Return the scores of one model."""
        n = len(logits["biased"])
        derivatives = 0.01 * (pull + 0.1) * np.random.default_rng(1).normal(1, 0.3, size=n)
        evidence = Evidence(
            labels=self.labels,
            biased_class=0,
            logits_clean=logits["clean"],
            logits_biased=logits["biased"],
            labels_biased=self.labels_biased,
            derivatives=derivatives,
        )
        about: dict[str, Any] = {"experiment": "own", "method": method, "seed": 0, "split": "test", "chosen": 1}
        about["strength"] = 10.0 if method == "rr-clarc" else None
        scores = compute_scores(evidence)
        seen = [score for score in scores if score.metric == "balanced_accuracy_biased"]
        return [*rows_of(scores, **about), *rows_of(seen, **about | {"split": "val", "epoch": 1})]

    def run(self, **changed: Mapping[str, np.ndarray]) -> list[Row]:
        """Return a run of four methods; ``changed`` replaces the answers of one, by name with an underscore."""
        models = self._models(changed)
        return [row for method, logits in models.items() for row in self.rows(method, logits, pull=PULLS[method])]

    def paired(self, **changed: Mapping[str, np.ndarray]) -> list[Difference]:
        """Return the differences of such a run on the same images."""
        found = compare_answers(self._answers(changed), self.labels, self.labels_biased, biased_class=0, seed=0)
        return found if self.labels_biased is not None else [*found, *compare_probability_changes(self._pulls(changed))]

    def paired_classes(self, **changed: Mapping[str, np.ndarray]) -> list[Difference]:
        """Return the differences of each class to the original model."""
        return compare_classes(self._answers(changed), self.labels, rival="original")

    def intervals(self, **changed: Mapping[str, np.ndarray]) -> dict[str, dict[str, Interval]]:
        """Return the intervals of such a run."""
        return {
            method: score_intervals(answers, self.labels, self.labels_biased, seed=0)
            for method, answers in self._answers(changed).items()
        }

    def _models(self, changed: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, Mapping[str, np.ndarray]]:
        return {
            method: changed.get(method.replace("-", "_")) or self.logits(2.5, pull) for method, pull in PULLS.items()
        }

    def _answers(self, changed: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, Answers]:
        return {
            method: {"clean": predict_classes(logits["clean"]), "biased": predict_classes(logits["biased"])}
            for method, logits in self._models(changed).items()
        }

    def _pulls(self, changed: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        def probability(logits: np.ndarray) -> np.ndarray:
            with np.errstate(invalid="ignore"):
                return np.exp(logits[:, 0] - np.logaddexp.reduce(logits, axis=1))

        models = self._models(changed).items()
        return {method: probability(logits["biased"]) - probability(logits["clean"]) for method, logits in models}

    def parts(self, **changed: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Return all of it as `make_run` takes it."""
        rows = self.run(**changed)
        told = {"paired": self.paired(**changed), "intervals": self.intervals(**changed), "unknown": self.unknown}
        told["paired_classes"] = self.paired_classes(**changed)
        return told | {"change": lambda _: rows, "selection": SELECTION, "meta": self.meta}

    @property
    def unknown(self) -> list[NotAvailable]:
        """Return what cannot be known here."""
        return find_unavailable(self.labels, self.labels_biased)

    @property
    def meta(self) -> dict[str, Any]:
        """Return the settings of the run."""
        kept = {key: META[key] for key in ("model", "layer", "size", "seed", "versions", "command")}
        n_biased = len(self.labels if self.labels_biased is None else self.labels_biased)
        counts = {"n_train": 900, "n_val_clean": 200, "n_val_biased": 60}
        counts |= {"n_test_clean": len(self.labels), "n_test_biased": n_biased}
        named = {"title": "My skin model", "artifact": "plaster", "biased_class": 0, "class_names": list(CLASSES)}
        return kept | named | counts | {"majority_rate": 0.5, "chance_level": 1 / 3}
