"""Studies that are as small as an experiment can be, and what the tests of experiments ask of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hansfree.data.artifacts import Artifact
from hansfree.data.biased import BiasedData, insert_bias
from hansfree.data.datasets import LabelledImages, Subset
from hansfree.data.lesions import SyntheticLesions
from hansfree.evaluation.results import Row
from hansfree_paper.dataset import BenchmarkDataset, Recipe
from hansfree_paper.embedded import Synthetic
from hansfree_paper.subjects import Plan, Subject, open_subject

RECIPE = Recipe(epochs={"demo": 2}, fresh_rates={"demo": 3e-3})
PLAN: dict[str, Any] = {"model": "demo", "correction_epochs": 2, "strengths": {"rr-clarc": (0.1, 10.0), "rrr": (0.1,)}}


class Joint(Synthetic):
    """The embedded suite, tiny: all shortcuts in one model."""

    default_size = 32
    recipe = RECIPE
    n_base, n_train, n_val, n_test = 320, 160, 104, 64


class Single(BenchmarkDataset):
    """Lesions of four classes with one shortcut, and bits that say which test images have a natural one."""

    title = "Single shortcut"
    name = "single"  # not registered: the tests of the registry must not see it
    artifacts = ("brightness", "timestamp", "lsb")
    default_size = 32
    needs_root = False
    recipe = RECIPE
    counts = (160, 104, 120)

    def data(self, model: str) -> BiasedData:
        starts = np.cumsum((0, *self.counts))
        parts = [SyntheticLesions(n, size=self.size, start=int(at)) for n, at in zip(self.counts, starts)]
        return insert_bias(parts, Artifact.named(self.artifact)(), biased_class=0, share=0.5, seed=self.seed)

    def flags(self) -> dict[str, np.ndarray]:
        return {"ruler": np.arange(self.counts[2]) < 20, "ink": np.arange(self.counts[2]) < 2}


class Natural(BenchmarkDataset):
    """Two classes, and plasters in the scenes, which cannot be inserted or removed; their place is unknown."""

    title = "Natural shortcut"
    name = "natural"
    artifacts = ("plaster",)
    default_size = 48
    needs_root = False
    recipe = RECIPE
    test_share = 0.5

    def data(self, model: str) -> BiasedData:
        self.scenes = scenes = Scenes(580, size=self.size, classes=2)
        rng = np.random.default_rng(self.seed)
        # in training the artifact is in half of class 0 and nowhere else; to validate and test, in half of all
        share = np.where(np.arange(580) < 320, np.where(scenes.labels == 0, 0.5, 0.0), 0.5)
        share[440:] = self.test_share
        scenes.has_plaster = rng.random(580) < share
        return natural_data(scenes, 320, 440)


def natural_data(scenes: Scenes, first_val: int, first_test: int) -> BiasedData:
    """Return data with natural plasters: the first images for training, then for validation, then for the test."""
    has = scenes.has_plaster

    def part(first: int, last: int, bit: bool | None = None) -> Subset:
        rows = np.arange(first, last)
        return Subset(LabelledImages(scenes, has), rows if bit is None else rows[has[rows] == bit])

    return BiasedData(
        train=part(0, first_val),
        val_clean=part(first_val, first_test, False),
        val_biased=part(first_val, first_test, True),
        test_clean=part(first_test, len(scenes), False),
        test_biased=part(first_test, len(scenes), True),
        biased_class=0,
        artifact="plaster",
        is_localized=True,
        is_inserted=False,
        has_masks=False,
    )


class Untested(Natural):
    """The same, and no test image has a plaster."""

    name = "untested"
    test_share = 0.0


class Scenes(SyntheticLesions):
    """Lesions of which some have a plaster, drawn into the scene."""

    has_plaster: np.ndarray

    def image(self, index: int) -> np.ndarray:
        return self.render(index, plaster=bool(self.has_plaster[index]))[0]

    @property
    def fingerprint(self) -> str:
        return f"{super().fingerprint} {self.has_plaster.tobytes()!r}"


@contextmanager
def opened(work: Path, study: BenchmarkDataset, **options: Any) -> Iterator[Subject]:
    with open_subject(study, Plan(**{**PLAN, **options}), work) as subject:
        yield subject


def rows_like(rows: Sequence[Row], **columns: Any) -> list[Row]:
    """Return the rows with these values."""
    return [row for row in rows if all(getattr(row, name) == value for name, value in columns.items())]


def value_of(rows: Sequence[Row], method: str, metric: str, **columns: Any) -> float:
    """Return the one score of a method on test images at the chosen strength."""
    (row,) = rows_like(rows, method=method, metric=metric, split="test", chosen=1, epoch=None, **{"seed": 0, **columns})
    return row.value


def values_of(rows: Sequence[Row]) -> dict[tuple[Any, ...], float]:
    """Return the scores by what they are scores of, whatever the seed and the experiment."""
    return {(row.method, row.strength, row.epoch, row.split, row.group, row.metric): row.value for row in rows}
