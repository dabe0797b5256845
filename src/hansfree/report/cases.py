"""What the artifact does to each image, under every method; and the images that a correction helped or harmed most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hansfree.experiments.cases import EXTREMES, NOTABLE
from hansfree.files import read_arrays
from hansfree.report.numbers import percent
from hansfree.report.pictures import picture_of
from hansfree.report.reading import Results, method_title
from hansfree.results import ORIGINAL


@dataclass(frozen=True)
class Cases:
    """Test images with small pictures and the answers of every model."""

    labels: np.ndarray
    is_sampled: np.ndarray  # of the fixed sample; the others are somebody's extremes
    pictures: dict[str, np.ndarray]  # "clean" (where the artifact is inserted), "biased"
    told: dict[str, dict[str, np.ndarray]]  # method -> e.g. "true_class_biased" -> per image
    counts: dict[str, tuple[int, int, int]]  # method -> test images with the artifact, better ones, worse ones

    @property
    def is_paired(self) -> bool:
        """Whether every image is known without the artifact and with it."""
        return "clean" in self.pictures

    @property
    def total(self) -> int | None:
        """How many test images carry the artifact; None where no method tells."""
        return next((n for n, _, _ in self.counts.values()), None)

    def methods(self, results: Results) -> list[str]:
        """Return who can be shown, in the order of the table; unpaired, the original is what they are compared with."""
        known = [variant.method for variant in results.methods()]
        found = [method for method in dict.fromkeys([*known, *self.told]) if method in self.told]
        return [method for method in found if self.is_paired or method != ORIGINAL]

    def places(self, method: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the probabilities of the biased class that a point shows: without and with, or before and after."""
        if self.is_paired:
            return self.told[method]["biased_class_clean"], self.told[method]["biased_class_biased"]
        return self.told[ORIGINAL]["biased_class_biased"], self.told[method]["biased_class_biased"]

    def answers(self, method: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the answers that belong to `places`."""
        if self.is_paired:
            return self.told[method]["predicted_clean"], self.told[method]["predicted_biased"]
        return self.told[ORIGINAL]["predicted_biased"], self.told[method]["predicted_biased"]


def load_cases(path: Path) -> Cases | None:
    """Read ``cases.npz``; None where there is none, as no test image carries the artifact."""
    if not path.is_file():
        return None
    arrays = read_arrays(path)
    told: dict[str, dict[str, np.ndarray]] = {}
    for key, values in arrays.items():
        kind, _, method = key.partition("/")
        if method and kind != "counts":
            told.setdefault(method, {})[kind] = values
    prefix = "pictures_"
    return Cases(
        labels=arrays["labels"],
        is_sampled=arrays["is_sampled"],
        pictures={key[len(prefix) :]: arrays[key] for key in arrays if key.startswith(prefix)},
        told=told,
        counts={
            method: (int(n), int(better), int(worse))
            for method in told
            if f"counts/{method}" in arrays
            for n, better, worse in [arrays[f"counts/{method}"]]
        },
    )


@dataclass(frozen=True)
class Case:
    """One image on the page: with the artifact, and what the models say of it before and after."""

    source: str
    alt: str
    truth: str
    probability: str
    answer: str


@dataclass(frozen=True)
class Extremes:
    """The images that a correction helped most and harmed most, in words where there are none."""

    title: str
    summary: str
    best: tuple[Case, ...]
    worst: tuple[Case, ...]


def find_extremes(results: Results, cases: Cases, shown: str) -> Extremes | None:
    """Return the largest changes of the true class's probability on images with the artifact, both ways."""
    if shown not in cases.counts:
        return None
    before, after = (cases.told[method]["true_class_biased"] for method in (ORIGINAL, shown))
    change = after - before
    order = np.argsort(change, kind="stable")
    worst = [int(row) for row in order[:EXTREMES] if change[row] <= -NOTABLE]
    best = [int(row) for row in order[::-1][:EXTREMES] if change[row] >= NOTABLE]
    n, n_better, n_worse = cases.counts[shown]
    title = method_title(shown)
    return Extremes(
        title,
        f"Of {n:,} test images with the artifact, the true class became more probable by a point or more in "
        f"{n_better:,} after {title}, and less probable in {n_worse:,}.",
        tuple(_case(results, cases, shown, row) for row in best),
        tuple(_case(results, cases, shown, row) for row in worst),
    )


def _case(results: Results, cases: Cases, shown: str, row: int) -> Case:
    def told(key: str) -> list[Any]:
        return [cases.told[method][key][row] for method in (ORIGINAL, shown)]

    truth = results.class_title(int(cases.labels[row]))
    before, after = map(percent, told("true_class_biased"))
    old, new = (name_answer(results, int(answer)) for answer in told("predicted_biased"))
    return Case(
        picture_of(cases.pictures["biased"][row]),
        f"Test image of class {truth} with the artifact",
        truth,
        f"{before} → {after}",
        f"stays {new}" if old == new else f"{old} → {new}",
    )


def name_answer(results: Results, answer: int) -> str:
    """Return the class that a model answers; one without finite numbers answers none."""
    return results.class_title(answer) if answer >= 0 else "none"


def titles_of(methods: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return methods with their titles, for a toggle."""
    return tuple((method, method_title(method)) for method in methods)
