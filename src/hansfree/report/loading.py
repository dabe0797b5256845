"""Read what a report is made of from a run folder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from hansfree.doctor import Diagnosis
from hansfree.errors import RunError
from hansfree.files import neighbour
from hansfree.metrics import Difference, Unknown
from hansfree.report.heatmap_set import read_heatmaps
from hansfree.report.reading import Results
from hansfree.report.ruling import Judgement
from hansfree.results import Row, further_artifact, read_rows


def tested_rows(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return the scores of final models on the test images."""
    return tuple(row for row in rows if row.split == "test" and row.epoch is None)


def validated_rows(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return the scores of the chosen models on the validation images."""
    return tuple(row for row in rows if row.split == "val" and row.chosen)


def load_results(run: Path) -> Results:
    """Read results.csv, results.json and, where they are there, heatmaps.npz and doctor.json of a run folder."""
    if run.is_file():
        raise RunError(f"{run} is a file, and a run's folder is wanted: for a run file, what it gives as 'out'.")
    if not run.is_dir():
        raise RunError(f"There is no run folder {run}.{neighbour(run)}")
    table, summary = run / "results.csv", run / "results.json"
    for path in (table, summary):
        if not path.is_file():
            raise RunError(
                f"{run} is not a finished run: it has no {path.name}. Let the run end first: it writes it last."
            )
    rows = read_rows(table)
    try:
        content = json.loads(summary.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise RunError(f"{summary} is not valid JSON: {error}.") from error
    heatmaps, doctor = run / "heatmaps.npz", run / "doctor.json"
    try:
        return Results(
            rows=tested_rows(rows),
            meta=content.get("meta", {}),
            selection=content.get("selection", {}),
            heatmaps=read_heatmaps(heatmaps) if heatmaps.is_file() else None,
            paired=tuple(Difference(**each) for each in content.get("paired", ())),
            paired_classes=tuple(Difference(**each) for each in content.get("paired_classes", ())),
            intervals={
                method: {metric: (low, high) for metric, (low, high) in found.items()}
                for method, found in content.get("intervals", {}).items()
            },
            validated=validated_rows(rows),
            rulings={method: Judgement(**each) for method, each in content.get("rulings", {}).items()},
            unknown=tuple(Unknown(**each) for each in content.get("unknown", ())),
            doctor=Diagnosis.from_json(doctor.read_text(encoding="utf-8")) if doctor.is_file() else None,
            further=tuple(filter(further_artifact, rows)),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"{run} was written by another version of hansfree, or is damaged ({error}). Run it again."
        ) from error
