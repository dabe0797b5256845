"""What finished stages keep per test image: answers, probabilities and heatmaps; and how models compare by them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import nn

from hansfree.corrections import Correction
from hansfree.experiments.cases import collect_cases, probabilities_of
from hansfree.experiments.material import Material
from hansfree.files import read_arrays, written_atomically
from hansfree.metrics import (
    Answers,
    Difference,
    Evidence,
    Interval,
    compare_answers,
    compare_classes,
    compare_pulls,
    predict_classes,
    score_intervals,
)
from hansfree.results import CLEAN_TRAINED, ORIGINAL


class Kept:
    """The arrays of one experiment's stages.

    Args:
        folder: Where they lie, a file for every model.
    """

    def __init__(self, material: Material, folder: Path) -> None:
        self.material, self.setting, self.folder = material, material.setting, folder

    def keep(self, name: str, evidence: Evidence, model: nn.Module | None = None) -> None:
        """Write what a model did; of one that is given, also the heatmaps of the shown images."""
        arrays = {
            "correct_clean": evidence.is_correct("clean"),
            "correct_biased": evidence.is_correct("biased"),
            "predicted_clean": predict_classes(evidence.logits_clean),
            "predicted_biased": predict_classes(evidence.logits_biased),
            **probabilities_of(evidence),
        }
        if model is not None:
            arrays["relevance"] = self.material.pictures.heatmaps(model, self.material.shown_rows)
            # what an exported model must give
            arrays["shown_logits"] = evidence.logits_biased[self.material.shown_rows]
        with written_atomically(self._path(name)) as temporary:
            np.savez(temporary, **arrays)  # type: ignore[arg-type]

    def load(self, name: str) -> dict[str, np.ndarray]:
        """Return what a finished stage kept: correctness, predictions, and the heatmaps of the shown images.

        Of the clean-trained reference there are no heatmaps.
        """
        stage = ORIGINAL if name == CLEAN_TRAINED else name
        return read_arrays(self._path(name), stage=self.folder / f"{stage}.json")

    def paired(self, methods: Sequence[str] | None = None) -> list[Difference]:
        """Return by how much the methods and the references differ from each other on the same images."""
        data, names = self.setting.data, self._compared(methods)
        answers, seed = {name: self._answers(name) for name in names}, self.setting.tuning.seed
        found = compare_answers(answers, *self._test_labels, biased_class=data.biased_class, seed=seed)
        return [*found, *compare_pulls({name: self._pull(name) for name in names if data.is_inserted})]

    def paired_classes(self, methods: Sequence[str] | None = None) -> list[Difference]:
        """Return by how much the methods change the sensitivity of each class, on the clean test images."""
        answers = {name: self._answers(name) for name in self._finished(methods)}
        return compare_classes(answers, self._test_labels[0], rival=ORIGINAL)

    def intervals(self, methods: Sequence[str] | None = None) -> dict[str, dict[str, Interval]]:
        """Return the 95 % intervals of accuracies and flip rate, by method; of the references too."""
        seed = self.setting.tuning.seed
        return {
            name: score_intervals(self._answers(name), *self._test_labels, seed=seed)
            for name in self._compared(methods)
        }

    def shown(self, methods: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Return the heatmaps of some images for the model as it came and every method, with the images.

        Nothing, where no test image carries the artifact.
        """
        test, rows = self.setting.data.test_biased, self.material.shown_rows
        if not len(rows):
            return {}
        images, masks = zip(*(test.pixels(int(row)) for row in rows))
        arrays = {"images": np.stack(images), "masks": np.stack(masks)}
        arrays |= {"labels": test.labels[rows], "ids": test.ids[rows]}
        arrays["direction"] = self.material.pictures.direction(rows)
        return arrays | {f"relevance/{name}": self.load(name)["relevance"] for name in self._finished(methods)}

    def cases(self, methods: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Return small pictures of test images with what every model makes of them; nothing where nothing is known."""
        kept = {name: self.load(name) for name in self._finished(methods)}
        return collect_cases(self.setting.data, kept, seed=self.setting.tuning.seed)

    def _answers(self, name: str) -> Answers:
        arrays = self.load(name)
        return {"clean": arrays["predicted_clean"], "biased": arrays["predicted_biased"]}

    def _pull(self, name: str) -> np.ndarray:
        """Return per image what inserting the artifact does to the biased class's probability."""
        arrays = self.load(name)
        return np.asarray(arrays["biased_class_biased"] - arrays["biased_class_clean"])

    @property
    def _test_labels(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The labels of the test images, and of those with the artifact where they are others."""
        data = self.setting.data
        return data.test_clean.labels, None if data.is_inserted else data.test_biased.labels

    def _finished(self, methods: Sequence[str] | None) -> list[str]:
        """Return the model as it came and those of the methods (the paper's by default) that have a head to show."""
        wanted = (ORIGINAL, *(Correction.defaults() if methods is None else methods))
        return [name for name in wanted if self._path(name).exists()]

    def _compared(self, methods: Sequence[str] | None) -> list[str]:
        """Return them with the clean-trained reference, where there is one."""
        return [*self._finished(methods), *([CLEAN_TRAINED] if self._path(CLEAN_TRAINED).exists() else ())]

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.npz"
