"""The report as one HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hansfree._internal.files import open_templates, write_text, written_atomically
from hansfree._internal.statistics import RESAMPLES
from hansfree.corrections import split_name
from hansfree.evaluation import FIRST, Results, Row, Variant, load_results, method_title, shown_variant, status_of
from hansfree.metrics import MIN_GROUP, BalancedAccuracyBiased, BalancedAccuracyClean, FlipRate, Metric
from hansfree.report.figures import Drawing, draw_alignment, draw_diagnosis, draw_strengths
from hansfree.report.images import (
    Cases,
    data_address,
    find_extremes,
    load_cases,
    show_direction,
    show_heatmaps,
    show_suspect_labels,
)
from hansfree.report.numbers import CONFIDENCE, MISSING, unit_of
from hansfree.report.plots import draw_effect, draw_tradeoff, explain_missing, to_file
from hansfree.report.tables import Column, Line, Table, cell_of, class_tables, inner_table, insertion_table, pair_table
from hansfree.report.text import (
    describe_notes,
    describe_relevance,
    describe_setting,
    mark_artifact,
    shown_command,
    shown_settings,
    write_verdict,
)

Scores = Mapping[Variant, Mapping[str, Row]]  # by model and metric

_CLEAN: dict[type[Metric], str] = {BalancedAccuracyClean: "accuracy"}  # short words: artifacts may be many

_BIASED: dict[type[Metric], str] = {FlipRate: "flip rate", BalancedAccuracyBiased: "accuracy"}


def side_effect_table(results: Results) -> Table | None:
    """Return the matrix, the run's own artifact first where it was inserted too; None where no other one was."""
    further: dict[str, dict[Variant, dict[str, Row]]] = {}
    for row in results.further:
        further.setdefault(str(row.artifact), {}).setdefault(Variant.of(row), {})[row.metric] = row
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
            status_of(results, variant),
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


_DPI = 160


@dataclass(frozen=True)
class Picture:
    """A figure as the page shows it: the address that holds it, with its words."""

    source: str
    alt: str
    caption: str
    width: int  # CSS pixels


def write_report(run: Path) -> Path:
    """Write ``report.html`` and ``figures/`` into the run folder, from what that folder holds; return the page."""
    results = load_results(run)
    drawings = [draw_alignment(results), draw_strengths(results)]
    if results.diagnosis is not None:
        drawings.append(draw_diagnosis(results.diagnosis))
    pictures = {drawing.name: _picture(drawing, run / "figures") for drawing in drawings if drawing is not None}
    tradeoff = draw_tradeoff(results)
    if tradeoff is not None:
        write_text(run / "figures" / "tradeoff.svg", to_file(tradeoff.svg))
    path = run / "report.html"
    text = _render(
        results,
        pictures=pictures,
        tradeoff=tradeoff,
        why_no_tradeoff=explain_missing(results),
        command=shown_command(results.meta.get("command") or ""),
        config=shown_settings(run, results.meta.get("unused") or ()),
        suspect_labels=show_suspect_labels(results.diagnosis, run / "suspect_labels.npz"),
        **_images(results, load_cases(run / "cases.npz")),
    )
    write_text(path, text)
    return path


def _images(results: Results, cases: Cases | None) -> dict[str, Any]:
    """Return what shows single images, each None where the run kept nothing to show."""
    shown = shown_variant(results)
    first = shown.method if shown else FIRST  # a model that is not to be used can be looked at all the same
    return {
        "heatmaps": show_heatmaps(results, first),
        "direction": show_direction(results),
        "effect": draw_effect(results, cases, first) if cases else None,
        "extremes": find_extremes(results, cases, shown.method) if cases and shown else None,
    }


def _picture(drawing: Drawing, folder: Path) -> Picture:
    path = folder / f"{drawing.name}.png"
    with written_atomically(path) as temporary:
        drawing.figure.savefig(temporary, dpi=_DPI)
    width = round(drawing.figure.get_figwidth() * 110)
    return Picture(data_address(path.read_bytes(), "PNG"), drawing.alt, drawing.caption, width)


def _render(results: Results, **drawn: Any) -> str:
    environment = open_templates("report", is_html=True)
    environment.filters["method"] = method_title
    meta = results.meta
    claims: list[dict[str, Any]] = meta.get("claims") or []
    return environment.get_template("report.html.jinja").render(
        title=meta.get("title") or "Unlearning a shortcut",
        setting=describe_setting(results),
        verdict=write_verdict(results),
        insertion=insertion_table(results),
        pairs=pair_table(results, shown_variant(results)),
        inner=inner_table(results),
        relevance=describe_relevance(results),
        classes=class_tables(results, shown_variant(results)),
        side_effects=side_effect_table(results),
        cannot=[claim for claim in claims if not claim["can_be_made"]],
        can=[claim for claim in claims if claim["can_be_made"]],
        notes=describe_notes(results),
        with_class_names=results.with_class_names,
        diagnosis=results.diagnosis,
        # the CAV that all are judged along, where some were corrected along others
        judged_along=meta.get("cav") if any(split_name(method)[1] for method in results.selection) else None,
        is_inserted=results.is_inserted,
        is_rare=results.why_unknown("accuracy_biased") is not None,
        min_group=MIN_GROUP,
        confidence=CONFIDENCE,
        selection=results.selection,
        diverged=_diverged(results),
        resamples=RESAMPLES,
        meta=meta,
        **drawn,
    )


def _diverged(results: Results) -> list[str]:
    """Return in words what ended in numbers that are not finite."""
    found: dict[str, list[str]] = {}
    for method, strength in results.diverged():
        found.setdefault(method, []).extend([] if strength is None else [f"{strength:g}"])
    return [
        f"{method_title(method)} diverged" + (f" at strength {', '.join(words)}" if words else "")
        for method, words in found.items()
    ]
