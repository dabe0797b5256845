"""Result files of a run: arrays per image, results.csv, results.json."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from hansfree._internal.files import write_json, written_atomically
from hansfree.data import SETS, BiasedData, ImageDataset, count_images, to_rgb
from hansfree.evaluation import ORIGINAL, Results, Row, claims, judge_methods, tested_rows, validated_rows, write_table
from hansfree.metrics import Condition, Evidence, chance_level, find_unavailable, majority_rate
from hansfree.pipeline.workspace import Setting, hash_contents

if TYPE_CHECKING:
    from hansfree.pipeline.experiment import Experiment

_MOST = 200  # images of the sample: more points hide each other
EXTREMES = 6  # images that a method helped most, and as many that it harmed most
_SIDE = 64  # pixels; the report holds several hundred of them
NOTABLE = 0.01  # change of a probability; what is smaller is neither help nor harm
_CONDITIONS: tuple[Condition, ...] = ("clean", "biased")


def probabilities_of(evidence: Evidence) -> dict[str, np.ndarray]:
    """Return, per image without and with the artifact, the probabilities of the biased and of the true class."""
    kept = {}
    for condition in _CONDITIONS:
        logits, labels = evidence.logits(condition), evidence.labels_of(condition)
        with np.errstate(invalid="ignore"):  # a model that diverged has no probabilities: NaN says so
            shares = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)).astype(np.float32)
        kept[f"biased_class_{condition}"] = shares[:, evidence.biased_class]
        kept[f"true_class_{condition}"] = shares[np.arange(len(labels)), labels]
    return kept


def collect_cases(
    data: BiasedData, kept: Mapping[str, Mapping[str, np.ndarray]], *, seed: int
) -> dict[str, np.ndarray]:
    """Return a sample of the test images and the extreme cases of each method, with the predictions of every model.

    Nothing, where no test image carries the artifact, or the original model gives no probabilities.

    Args:
        kept: Stored arrays per image of each finished stage, with the original model.
    """
    known = {name: arrays for name, arrays in kept.items() if _is_known(arrays)}
    n = len(data.test_biased)
    if not n or ORIGINAL not in known:
        return {}
    sample = np.random.default_rng(seed).choice(n, min(n, _MOST), replace=False)
    before = known[ORIGINAL]["true_class_biased"]
    changes = {name: arrays["true_class_biased"] - before for name, arrays in known.items() if name != ORIGINAL}
    extremes = [np.argsort(change, kind="stable")[each] for change in changes.values() for each in _ends(n)]
    rows = np.unique(np.concatenate([sample, *extremes]))
    cases = {
        "labels": data.test_biased.labels[rows],
        "is_sampled": np.isin(rows, sample),
        "pictures_biased": small_pictures(data.test_biased, rows),
    }
    if data.is_inserted:
        cases["pictures_clean"] = small_pictures(data.test_clean, rows)
    conditions = _CONDITIONS if data.is_inserted else ("biased",)  # by nature, the clean images are others
    for name, arrays in known.items():
        for condition in conditions:
            for field in ("biased_class", "true_class", "predicted"):
                cases[f"{field}_{condition}/{name}"] = arrays[f"{field}_{condition}"][rows]
    for name, change in changes.items():
        cases[f"counts/{name}"] = np.array([n, (change >= NOTABLE).sum(), (change <= -NOTABLE).sum()])
    return cases


def _is_known(arrays: Mapping[str, np.ndarray]) -> bool:
    arrays_of = (arrays[f"{which}_class_{condition}"] for which in ("biased", "true") for condition in _CONDITIONS)
    return all(np.isfinite(values).all() for values in arrays_of)


def _ends(n: int) -> tuple[slice, slice]:
    """Return which of ``n`` sorted images are the extremes."""
    return slice(0, EXTREMES), slice(max(0, n - EXTREMES), n)


def small_pictures(images: ImageDataset, rows: Iterable[int], *, side: int = _SIDE) -> np.ndarray:
    """Return pictures of some images, uint8 (n, height, width, 3), no side longer than ``side``."""
    return np.stack([_shrunk(images.pixels(int(row))[0], side) for row in rows])


def _shrunk(image: np.ndarray, side: int) -> np.ndarray:
    picture = Image.fromarray(to_rgb(image))
    picture.thumbnail((side, side))  # never larger than it is
    return np.asarray(picture)


_PACKAGES = ("hansfree", "torch", "numpy", "scikit-learn", "zennit")


def write_outcome(experiment: Experiment, rows: Sequence[Row], results: Results, about: Mapping[str, Any]) -> None:
    """Write ``results.csv``, ``results.json`` and arrays for the report.

    No heatmaps and no cases are written where no test image carries the artifact.

    Args:
        rows: All scores, in the order in which they are written.
        results: What `gather_results` found in the experiment.
        about: What only the caller knows: title, model, command.
    """
    folder, kept, names = experiment.run.path, experiment.predictions, list(results.selection)
    for file, arrays in (("heatmaps.npz", kept.shown(names)), ("cases.npz", kept.cases(names))):
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
                "explanation": experiment.explanation,
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


def gather_results(experiment: Experiment, methods: Sequence[str], rows: Sequence[Row]) -> Results:
    """Return what the report will know of the scores, with the verdict on every method.

    All methods are compared with each other, which takes long where there are many.

    Args:
        rows: What the experiment gave for these methods.
    """
    data = experiment.setting.data
    results = Results(
        rows=tested_rows(rows),
        meta=_facts(experiment.setting),
        selection={name: experiment.selection(experiment.plain(name)) for name in methods},
        heatmaps=None,
        paired=tuple(experiment.predictions.paired(methods)),
        paired_classes=tuple(experiment.predictions.paired_classes(methods)),
        intervals=experiment.predictions.intervals(methods),
        validated=validated_rows(rows),
        unknown=tuple(find_unavailable(data.test_clean.labels, None if data.is_inserted else data.test_biased.labels)),
    )
    return replace(results, verdicts=judge_methods(results))


def _facts(setting: Setting) -> dict[str, Any]:
    data = setting.data
    return {
        "artifact": data.artifact,
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
