"""Result files of a run: arrays per image, results.csv, results.json."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from torch import nn

from hansfree._internal.files import hash_file, read_arrays, write_json, written_atomically
from hansfree._internal.hashing import fingerprint, hash_weights
from hansfree._internal.store import RunStore
from hansfree.data import SETS, BiasedData, ImageDataset, count_images, to_rgb
from hansfree.evaluation import (
    CLEAN_TRAINED,
    ORIGINAL,
    Results,
    Row,
    claims,
    judge_methods,
    tested_rows,
    validated_rows,
    write_table,
)
from hansfree.metrics import (
    Answers,
    Condition,
    Difference,
    Evidence,
    chance_level,
    compare_answers,
    compare_classes,
    compare_probability_changes,
    find_unavailable,
    majority_rate,
    predict_classes,
    score_intervals,
)
from hansfree.models import plain_state
from hansfree.pipeline.workspace import Setting, Workspace

if TYPE_CHECKING:
    from hansfree.pipeline.experiment import Experiment

_MOST = 200  # images of the sample: more points hide each other
EXTREMES = 6  # images that a method helped most, and as many that it harmed most
_SIDE = 64  # pixels; the report holds several hundred of them
NOTABLE = 0.01  # change of a probability; smaller ones count as unchanged
_PACKAGES = ("hansfree", "torch", "numpy", "scikit-learn", "zennit")
_CONDITIONS: tuple[Condition, ...] = ("clean", "biased")


class PredictionStore:
    """The arrays per image of one experiment's stages, a file for every model; methods without a model are left out."""

    def __init__(self, workspace: Workspace, folder: Path) -> None:
        self.workspace, self.data, self.folder = workspace, workspace.data, folder
        self.seed = workspace.setting.tuning.seed

    def write(self, name: str, evidence: Evidence, model: nn.Module | None = None) -> None:
        """Write a model's predictions; if the model is given, also the heatmaps of the shown images."""
        arrays = probabilities_of(evidence)
        if name == ORIGINAL:  # what other runs on the same images are compared by
            arrays |= {f"labels_{condition}": evidence.labels_of(condition) for condition in _CONDITIONS}
        for condition in _CONDITIONS:
            arrays[f"correct_{condition}"] = evidence.is_correct(condition)
            arrays[f"predicted_{condition}"] = predict_classes(evidence.logits(condition))
        if model is not None:
            shown = self.workspace.shown_rows
            arrays["relevance"] = self.workspace.heatmaps(model, shown)
            arrays["shown_logits"] = evidence.logits_biased[shown]  # an exported model must give the same
        with written_atomically(self._path(name)) as temporary:
            np.savez(temporary, **arrays)  # type: ignore[arg-type]

    def load(self, name: str) -> dict[str, np.ndarray]:
        """Return the arrays of a finished stage; those of the reference model have no heatmaps."""
        stage = ORIGINAL if name == CLEAN_TRAINED else name
        return read_arrays(self._path(name), stage=self.folder / f"{stage}.json")

    def finished(self, *names: str) -> dict[str, dict[str, np.ndarray]]:
        """Return the arrays of the original model and of those methods that have a model."""
        return {name: self.load(name) for name in (ORIGINAL, *names) if self._path(name).exists()}

    def paired(self, methods: Sequence[str]) -> list[Difference]:
        """Return by how much the methods and the references differ from each other on the same images."""
        arrays = self.finished(*methods, CLEAN_TRAINED)
        found = compare_answers(
            answers_of(arrays), *self.test_labels, biased_class=self.data.biased_class, seed=self.seed
        )
        if not self.data.is_inserted:
            return found
        changes = {name: each["biased_class_biased"] - each["biased_class_clean"] for name, each in arrays.items()}
        return [*found, *compare_probability_changes(changes)]

    def shown(self, methods: Sequence[str]) -> dict[str, np.ndarray]:
        """Return some images with their heatmaps; empty if no test image carries the artifact."""
        test, rows = self.data.test_biased, self.workspace.shown_rows
        if not len(rows):
            return {}
        images, masks = zip(*(test.pixels(int(row)) for row in rows))
        arrays = {"images": np.stack(images), "masks": np.stack(masks)}
        arrays |= {"labels": test.labels[rows], "ids": test.ids[rows], "direction": self.workspace.cav_heatmaps(rows)}
        return arrays | {f"relevance/{name}": each["relevance"] for name, each in self.finished(*methods).items()}

    @property
    def test_labels(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The labels of the test images, and of those with the artifact if they are others."""
        return self.data.test_clean.labels, None if self.data.is_inserted else self.data.test_biased.labels

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.npz"


def answers_of(arrays: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, Answers]:
    """Return the predicted classes of each model."""
    return {
        name: {"clean": each["predicted_clean"], "biased": each["predicted_biased"]} for name, each in arrays.items()
    }


def probabilities_of(evidence: Evidence) -> dict[str, np.ndarray]:
    """Return, per image without and with the artifact, the probabilities of the biased and of the true class."""
    found = {}
    for condition in _CONDITIONS:
        logits, labels = evidence.logits(condition), evidence.labels_of(condition)
        with np.errstate(invalid="ignore"):  # NaN for a model that diverged
            shares = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)).astype(np.float32)
        found[f"biased_class_{condition}"] = shares[:, evidence.biased_class]
        found[f"true_class_{condition}"] = shares[np.arange(len(labels)), labels]
    return found


def collect_cases(
    data: BiasedData, stored: Mapping[str, Mapping[str, np.ndarray]], *, seed: int
) -> dict[str, np.ndarray]:
    """Return a sample of the test images and the extreme cases of each method, with the predictions of every model.

    Empty if no test image carries the artifact, or the original model gives no finite probabilities.
    """
    known = {name: arrays for name, arrays in stored.items() if _is_finite(arrays)}
    n = len(data.test_biased)
    if not n or ORIGINAL not in known:
        return {}
    sample = np.random.default_rng(seed).choice(n, min(n, _MOST), replace=False)
    before = known[ORIGINAL]["true_class_biased"]
    changes = {name: arrays["true_class_biased"] - before for name, arrays in known.items() if name != ORIGINAL}
    orders = [np.argsort(change, kind="stable") for change in changes.values()]
    extremes = [part for order in orders for part in (order[:EXTREMES], order[max(0, n - EXTREMES) :])]
    rows = np.unique(np.concatenate([sample, *extremes]))
    cases = {
        "labels": data.test_biased.labels[rows],
        "is_sampled": np.isin(rows, sample),
        "pictures_biased": small_pictures(data.test_biased, rows),
    }
    if data.is_inserted:
        cases["pictures_clean"] = small_pictures(data.test_clean, rows)
    conditions = _CONDITIONS if data.is_inserted else ("biased",)  # natural: the clean images are others
    for name, arrays in known.items():
        for condition in conditions:
            for field in ("biased_class", "true_class", "predicted"):
                cases[f"{field}_{condition}/{name}"] = arrays[f"{field}_{condition}"][rows]
    for name, change in changes.items():
        cases[f"counts/{name}"] = np.array([n, (change >= NOTABLE).sum(), (change <= -NOTABLE).sum()])
    return cases


def _is_finite(arrays: Mapping[str, np.ndarray]) -> bool:
    names = (f"{which}_class_{condition}" for which in ("biased", "true") for condition in _CONDITIONS)
    return all(np.isfinite(arrays[name]).all() for name in names)


def small_pictures(images: ImageDataset, rows: Iterable[int], *, side: int = _SIDE) -> np.ndarray:
    """Return pictures of some images, uint8 (n, height, width, 3), no side longer than ``side``."""
    pictures = [Image.fromarray(to_rgb(images.pixels(int(row))[0])) for row in rows]
    for picture in pictures:
        picture.thumbnail((side, side))  # never enlarges
    return np.stack([np.asarray(picture) for picture in pictures])


def weights_file(store: RunStore) -> Path:
    """Return the file in which a run stores the weights of the original model."""
    return store.path / "original.safetensors"


def write_outcome(experiment: Experiment, rows: Sequence[Row], results: Results, about: Mapping[str, Any]) -> None:
    """Write ``results.csv``, ``results.json`` and arrays for the report.

    No heatmaps and no cases are written where no test image carries the artifact. ``about`` is what only the caller
    knows: title, model, command.
    """
    folder, stored, names = experiment.run.path, experiment.predictions, list(results.selection)
    cases = collect_cases(stored.data, stored.finished(*names), seed=stored.seed)
    for file, arrays in (("heatmaps.npz", stored.shown(names)), ("cases.npz", cases)):
        if arrays:
            with written_atomically(folder / file) as temporary:
                np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]
    write_table(folder / "results.csv", rows, unknown=results.unknown)
    write_json(
        folder / "results.json",
        {
            "meta": {
                **results.meta,
                "hashes": hash_contents(experiment.setting, folder, names),
                "explanation": experiment.workspace.explanation,
                "seconds": experiment.run.seconds,
                **about,
            },
            "selection": results.selection,
            "paired": [asdict(each) for each in results.paired],
            "paired_classes": [asdict(each) for each in results.paired_classes],
            "intervals": results.intervals,
            "verdicts": {name: verdict.to_json() for name, verdict in results.verdicts.items()},
            "unknown": [asdict(one) for one in results.unknown],
            "scores": [asdict(row) for row in rows],
        },
    )


def gather_results(
    experiment: Experiment, methods: Sequence[str], rows: Sequence[Row], *, insertion_differs: bool = False
) -> Results:
    """Return what the report will know of the scores, with the verdict on every method.

    All methods are compared with each other, which takes long where there are many.
    """
    stored, seed = experiment.predictions, experiment.setting.tuning.seed
    labels, answers = stored.test_labels, answers_of(stored.finished(*methods))
    known = answers | answers_of(stored.finished(CLEAN_TRAINED))
    results = Results(
        rows=tested_rows(rows),
        meta={**_facts(experiment.setting), "insertion_differs": insertion_differs},
        selection={name: experiment.selection(experiment.plain(name)) for name in methods},
        heatmaps=None,
        paired=tuple(stored.paired(methods)),
        paired_classes=tuple(compare_classes(answers, labels[0], rival=ORIGINAL)),
        intervals={name: score_intervals(each, *labels, seed=seed) for name, each in known.items()},
        validated=validated_rows(rows),
        unknown=tuple(find_unavailable(*labels)),
    )
    return replace(results, verdicts=judge_methods(results))


def _facts(setting: Setting) -> dict[str, Any]:
    data = setting.data
    return {
        "artifact": data.artifact,
        "transplant": data.transplant,
        "biased_class": data.biased_class,
        "class_names": list(data.train.class_names),
        "layer": setting.layer,
        "cav": setting.cav,
        "claims": [asdict(claim) for claim in claims(data)],
        "counts": count_images(data),
        "budget": setting.rule.budget,
        "class_budgets": {str(label): most for label, most in setting.rule.class_budgets.items()},
        "chance_level": chance_level(data.test_clean.labels),
        "majority_rate": majority_rate(data.test_clean.labels),
        "seed": setting.tuning.seed,
        **{f"n_{name}": len(getattr(data, name)) for name in SETS},
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
    }


def hash_contents(setting: Setting, folder: Path, methods: Sequence[str]) -> dict[str, str]:
    """Return hashes of images and weights, to compare with another run and with model cards.

    Images and the original weights have hansfree's fingerprints, which do not depend on how files are written; the
    corrected weights have the SHA-256 of their files.
    """
    hashes = {
        f"images, {name.replace('_', ' ')}": fingerprint(getattr(setting.data, name).fingerprint) for name in SETS
    }
    hashes["original weights"] = hash_weights(plain_state(setting.model))
    weights = {name: folder / "corrected" / f"{name}.safetensors" for name in methods}
    return hashes | {f"weights, {name}": hash_file(path) for name, path in weights.items() if path.exists()}
