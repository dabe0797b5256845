"""The report as one HTML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hansfree._internal.files import open_templates, write_text, written_atomically
from hansfree._internal.statistics import RESAMPLES
from hansfree.corrections import split_name
from hansfree.evaluation import FIRST, Results, load_results, method_title, shown_variant
from hansfree.metrics import MIN_GROUP
from hansfree.report.figures import Drawing, draw_alignment, draw_diagnosis, draw_strengths
from hansfree.report.images import (
    data_address,
    find_extremes,
    load_cases,
    show_direction,
    show_heatmaps,
    show_suspect_labels,
)
from hansfree.report.numbers import CONFIDENCE
from hansfree.report.plots import draw_effect, draw_tradeoff, explain_missing, to_file
from hansfree.report.tables import class_tables, inner_table, insertion_table, pair_table, side_effect_table
from hansfree.report.text import (
    describe_notes,
    describe_relevance,
    describe_setting,
    shown_command,
    shown_settings,
    write_verdict,
)


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
    shown, cases = shown_variant(results), load_cases(run / "cases.npz")
    first = shown.method if shown else FIRST  # a model that is not to be used can be looked at all the same
    path = run / "report.html"
    text = _render(
        results,
        pictures=pictures,
        tradeoff=tradeoff,
        why_no_tradeoff=explain_missing(results),
        command=shown_command(results.meta.get("command") or ""),
        config=shown_settings(run, results.meta.get("unused") or ()),
        suspect_labels=show_suspect_labels(results.diagnosis, run / "suspect_labels.npz"),
        heatmaps=show_heatmaps(results, first),
        direction=show_direction(results),
        effect=draw_effect(results, cases, first) if cases else None,
        extremes=find_extremes(results, cases, shown.method) if cases and shown else None,
    )
    write_text(path, text)
    return path


def _picture(drawing: Drawing, folder: Path) -> Picture:
    path = folder / f"{drawing.name}.png"
    with written_atomically(path) as temporary:
        drawing.figure.savefig(temporary, dpi=160)
    width = round(drawing.figure.get_figwidth() * 110)
    return Picture(data_address(path.read_bytes(), "PNG"), drawing.alt, drawing.caption, width)


def _render(results: Results, **drawn: Any) -> str:
    environment = open_templates("report", is_html=True)
    environment.filters["method"] = method_title
    meta, shown = results.meta, shown_variant(results)
    claims: list[dict[str, Any]] = meta.get("claims") or []
    return environment.get_template("report.html.jinja").render(
        title=meta.get("title") or "Unlearning a shortcut",
        setting=describe_setting(results),
        verdict=write_verdict(results),
        insertion=insertion_table(results),
        pairs=pair_table(results, shown),
        inner=inner_table(results),
        relevance=describe_relevance(results),
        classes=class_tables(results, shown),
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
