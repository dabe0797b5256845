"""What a finished experiment leaves in its run folder for the report, the export, and whoever computes on."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import Any

import numpy as np

from hansfree._internal.files import write_json, written_atomically
from hansfree.experiments.experiment import Experiment
from hansfree.experiments.workspace import Setting, hash_contents
from hansfree.metrics import chance_level, find_unknown, majority_rate
from hansfree.report.reading import Results, tested_rows, validated_rows
from hansfree.report.text import judge_methods
from hansfree.results import Row, write_table
from hansfree.selection import claims
from hansfree.studies import SETS
from hansfree.studies.biased import count_images

_PACKAGES = ("hansfree", "torch", "numpy", "scikit-learn", "zennit")


def write_outcome(experiment: Experiment, rows: Sequence[Row], results: Results, about: Mapping[str, Any]) -> None:
    """Write ``results.csv``, ``results.json`` and arrays for the report.

    No heatmaps and no cases are written where no test image carries the artifact.

    Args:
        rows: All scores, in the order in which they are written.
        results: What `gather_results` found in the experiment.
        about: What only the caller knows: title, model, command.
    """
    folder, kept, names = experiment.run.path, experiment.kept, list(results.selection)
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
            "rulings": {name: asdict(judgement) for name, judgement in results.rulings.items()},
            "unknown": [asdict(one) for one in results.unknown],
            "scores": [asdict(row) for row in rows],
        },
    )


def gather_results(experiment: Experiment, methods: Sequence[str], rows: Sequence[Row]) -> Results:
    """Return what the report will know of the scores, with the ruling on every method.

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
        paired=tuple(experiment.kept.paired(methods)),
        paired_classes=tuple(experiment.kept.paired_classes(methods)),
        intervals=experiment.kept.intervals(methods),
        validated=validated_rows(rows),
        unknown=tuple(find_unknown(data.test_clean.labels, None if data.is_inserted else data.test_biased.labels)),
    )
    return replace(results, rulings=judge_methods(results))


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
