"""Put the report together: sentences, tables and figures into one file that needs nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hansfree.corrections import split_name
from hansfree.files import write_text, written_atomically
from hansfree.metrics import MIN_GROUP
from hansfree.metrics.intervals import RESAMPLES
from hansfree.report.cases import Cases, find_extremes, load_cases
from hansfree.report.classes import class_tables
from hansfree.report.doctor import draw_diagnosis
from hansfree.report.effect import draw_effect
from hansfree.report.figures import draw_alignment
from hansfree.report.loading import load_results
from hansfree.report.maps import show_direction, show_heatmaps
from hansfree.report.numbers import CONFIDENCE
from hansfree.report.pairs import pair_table
from hansfree.report.pictures import data_address
from hansfree.report.reading import FIRST, Results, method_title
from hansfree.report.relevance import describe_relevance
from hansfree.report.settings import shown_command, shown_settings
from hansfree.report.side_effects import side_effect_table
from hansfree.report.strengths import draw_strengths
from hansfree.report.style import Drawing
from hansfree.report.svg import to_file
from hansfree.report.tables import inner_table, insertion_table
from hansfree.report.tradeoff import draw_tradeoff, explain_missing
from hansfree.report.verdict import describe_setting, reach_verdict, shown_variant
from hansfree.report.wrong_marks import show_wrong_marks
from hansfree.templates import open_templates

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
    if results.doctor is not None:
        drawings.append(draw_diagnosis(results.doctor))
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
        wrong_marks=show_wrong_marks(results.doctor, run / "wrong_marks.npz"),
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
        verdict=reach_verdict(results),
        insertion=insertion_table(results),
        pairs=pair_table(results, shown_variant(results)),
        inner=inner_table(results),
        relevance=describe_relevance(results),
        classes=class_tables(results, shown_variant(results)),
        side_effects=side_effect_table(results),
        cannot=[claim for claim in claims if not claim["can_be_made"]],
        can=[claim for claim in claims if claim["can_be_made"]],
        notes=results.notes(),
        with_class_names=results.with_class_names,
        doctor=results.doctor,
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
        f"{method_title(method)} diverged" + (f" at strength {', '.join(told)}" if told else "")
        for method, told in found.items()
    ]
