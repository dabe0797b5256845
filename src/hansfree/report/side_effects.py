"""What the corrections do under other artifacts than the run's own: a matrix of models and artifacts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from hansfree.metrics import BalancedAccuracyBiased, BalancedAccuracyClean, FlipRate, Metric
from hansfree.report.numbers import CONFIDENCE, MISSING, unit_of
from hansfree.report.reading import Results, Variant
from hansfree.report.removal import mark_artifact
from hansfree.report.tables import Column, Line, Table, cell_of
from hansfree.report.usable import kind_of
from hansfree.results import Row, further_artifact

Scores = Mapping[Variant, Mapping[str, Row]]  # by model and metric
_CLEAN: dict[type[Metric], str] = {BalancedAccuracyClean: "accuracy"}  # short words: artifacts may be many
_BIASED: dict[type[Metric], str] = {FlipRate: "flip rate", BalancedAccuracyBiased: "accuracy"}


def side_effect_table(results: Results) -> Table | None:
    """Return the matrix, the run's own artifact first where it was put in too; None where no other one was."""
    further: dict[str, dict[Variant, dict[str, Row]]] = {}
    for row in results.further:
        further.setdefault(further_artifact(row), {}).setdefault(Variant.of(row), {})[row.metric] = row
    variants = [variant for variant in results.methods() if any(variant in scores for scores in further.values())]
    if not variants:
        return None
    known = {variant: results.chosen(variant) for variant in variants}
    columns = [*_columns("No artifact", _CLEAN, known)]
    if results.is_inserted:
        columns += _columns(f"{results.meta.get('artifact') or 'artifact'} (of this run)", _BIASED, known)
    for artifact, scores in further.items():
        columns += _columns(mark_artifact(results, artifact), _BIASED, scores)
    lines = [
        Line(
            variant.title(results.methods()),
            "",
            kind_of(results, variant),
            tuple(cell_of(scores.get(variant, {}).get(column.metric)) for column, scores in columns),
        )
        for variant in variants
    ]
    table = Table(tuple(column for column, _ in columns), tuple(lines))
    at_ends = f", or at 0 and 100 the {CONFIDENCE} interval" if table.has_intervals else ""
    caption = f"Test images; flip rate and accuracy, balanced over classes, in percent ± one standard error{at_ends}"
    return replace(table, caption=caption)


def _columns(head: str, metrics: Mapping[type[Metric], str], scores: Scores) -> Iterator[tuple[Column, Scores]]:
    """Yield the columns under one head, each with the scores that its cells are taken from."""
    for metric, part in metrics.items():
        name, ideal = metric.name, f"{100 * metric.ideal:g}"
        n = next((str(of[name].n) for of in scores.values() if name in of), MISSING)
        yield Column(name, head, part, unit_of(name), ideal, metric.description, n), scores
