"""What a finished experiment leaves in its run folder for the report, the export, and whoever computes on."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np

from hansfree.corrections import Correction
from hansfree.experiments.experiment import Experiment
from hansfree.experiments.provenance import hash_contents
from hansfree.experiments.setting import Setting
from hansfree.files import write_json, written_atomically
from hansfree.metrics import find_unknown, majority_rate
from hansfree.results import Row, write_table
from hansfree.selection import claims
from hansfree.studies import SETS
from hansfree.studies.counting import count_images

_PACKAGES = ("hansfree", "torch", "numpy", "scikit-learn", "zennit")


def write_outcome(
    experiment: Experiment, about: Mapping[str, Any], *, methods: Sequence[str] | None = None
) -> list[Row]:
    """Do what is not done yet; write ``results.csv``, ``results.json`` and arrays for the report; return the rows.

    No heatmaps and no cases are written where no test image carries the artifact.

    Args:
        about: What only the caller knows: title, model, command.
        methods: All corrections by default.
    """
    folder, names = experiment.run.path, list(Correction.members()) if methods is None else list(methods)
    rows = experiment.rows(names)
    for file, arrays in (("heatmaps.npz", experiment.shown(names)), ("cases.npz", experiment.cases(names))):
        if arrays:
            with written_atomically(folder / file) as temporary:
                np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]
    data = experiment.setting.data
    unknown = find_unknown(data.test_clean.labels, None if data.is_inserted else data.test_biased.labels)
    write_table(folder / "results.csv", rows, unknown=unknown)
    write_json(
        folder / "results.json",
        {
            "meta": {
                **_facts(experiment.setting),
                "hashes": hash_contents(experiment.setting, folder, names),
                "explanation": experiment.explanation,
                "seconds": experiment.run.seconds,
                **about,
            },
            "selection": {name: experiment.selection(experiment.plain(name)) for name in names},
            "paired": [asdict(each) for each in experiment.paired(names)],
            "intervals": experiment.intervals(names),
            "unknown": [asdict(one) for one in unknown],
            "scores": [asdict(row) for row in rows],
        },
    )
    return rows


def _facts(setting: Setting) -> dict[str, Any]:
    data = setting.data
    return {
        "artifact": data.artifact,
        "biased_class": data.biased_class,
        "class_names": list(data.train.class_names),
        "layer": setting.layer,
        "claims": [asdict(claim) for claim in claims(data)],
        "counts": count_images(data),
        "budget": setting.rule.budget,
        "majority_rate": majority_rate(data.test_clean.labels),
        "seed": setting.tuning.seed,
        **{f"n_{name}": len(getattr(data, name)) for name in SETS},
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
    }
