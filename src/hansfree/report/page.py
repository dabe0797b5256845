"""The report as one HTML file."""

from __future__ import annotations

from pathlib import Path

from hansfree._internal.files import open_templates, write_text
from hansfree._internal.statistics import RESAMPLES
from hansfree.corrections import split_name
from hansfree.evaluation import BIASED, FIRST, Results, load_results, method_title, shown_variant
from hansfree.metrics import MIN_GROUP
from hansfree.pipeline import Depth
from hansfree.report.direction import describe_depth, describe_diagnosis, describe_finding
from hansfree.report.figures import draw_alignment, draw_diagnosis, draw_strengths
from hansfree.report.images import (
    before_after,
    find_extremes,
    load_cases,
    show_direction,
    show_heatmaps,
    show_suspect_labels,
)
from hansfree.report.numbers import CONFIDENCE
from hansfree.report.plots import draw_classes, draw_effect, draw_tradeoff, make_plot
from hansfree.report.summary import summarize
from hansfree.report.tables import class_tables, inner_table, insertion_table, pair_table, side_effect_table
from hansfree.report.text import (
    describe_claims,
    describe_notes,
    describe_relevance,
    describe_selection,
    describe_setting,
    shown_command,
    shown_settings,
    write_verdict,
)

_FIRST_IMAGES = 4  # of the heatmaps, on the first screen


def write_report(run: Path) -> Path:
    """Write ``report.html`` and ``figures/`` into the run folder, from what that folder holds; return the page."""
    results = load_results(run)
    meta, shown, cases = results.meta, shown_variant(results), load_cases(run / "cases.npz")
    first = shown.method if shown else FIRST  # a model that is not to be used can be looked at all the same
    diagnosis, heatmaps, summary = results.diagnosis, show_heatmaps(results, first), summarize(results)
    drawings = {
        "alignment": draw_alignment(results),
        "strengths": draw_strengths(results),
        "diagnostics": None if diagnosis is None else draw_diagnosis(diagnosis),
    }
    plots = {
        name: None if each is None else make_plot(each.figure, name, alt=each.alt, caption=each.caption)
        for name, each in drawings.items()
    }
    tradeoff, class_changes = draw_tradeoff(results, shown), draw_classes(results, shown)
    for plot in (*plots.values(), tradeoff, class_changes):
        if plot is not None:
            write_text(run / "figures" / f"{plot.name}.svg", plot.file)
    claims = describe_claims(meta.get("claims") or ())
    environment = open_templates("report", is_html=True)
    environment.filters["method"] = method_title
    text = environment.get_template("report.html.jinja").render(
        title=meta.get("title") or "Unlearning a shortcut",
        setting=describe_setting(results),
        summary=summary,
        badges={line.title: line.badge for line in summary.lines if line.badge},
        verdict=write_verdict(results),
        insertion=insertion_table(results),
        pairs=pair_table(results, shown),
        inner=inner_table(results),
        relevance=describe_relevance(results),
        classes=class_tables(results, shown),
        class_changes=class_changes,
        is_binary=results.is_binary,
        side_effects=side_effect_table(results),
        cannot=[claim for claim in claims if not claim["can_be_made"]],
        can=[claim for claim in claims if claim["can_be_made"]],
        notes=describe_notes(results),
        diagnosis=diagnosis,
        depth=describe_depth(Depth(**meta["depth"]), results.selection) if meta.get("depth") else "",
        describe_diagnosis=describe_diagnosis,
        describe_finding=describe_finding,
        # the CAV that all are judged along, where some were corrected along others
        judged_along=meta.get("cav") if any(split_name(method)[1] for method in results.selection) else None,
        is_inserted=results.is_inserted,
        is_rare=results.why_unknown("accuracy_biased") is not None,
        min_group=MIN_GROUP,
        confidence=CONFIDENCE,
        selection=[describe_selection(results, method) for method in results.selection],
        diverged=_diverged(results),
        resamples=RESAMPLES,
        meta=meta,
        plots=plots,
        tradeoff=tradeoff,
        why_no_tradeoff=results.why_unknown(BIASED),
        command=shown_command(meta.get("command") or ""),
        config=shown_settings(run, meta.get("unused") or ()),
        suspect_labels=show_suspect_labels(diagnosis, run / "suspect_labels.npz"),
        heatmaps=heatmaps,
        before_after=before_after(heatmaps, first, most=_FIRST_IMAGES),
        direction=show_direction(results),
        effect=draw_effect(results, cases, first) if cases else None,
        extremes=find_extremes(results, cases, shown.method) if cases and shown else None,
    )
    path = run / "report.html"
    write_text(path, text)
    return path


def _diverged(results: Results) -> list[str]:
    """Return in words what ended in numbers that are not finite."""
    found: dict[str, list[str]] = {}
    for method, strength in results.diverged():
        found.setdefault(method, []).extend([] if strength is None else [f"{strength:g}"])
    return [
        f"{method_title(method)} diverged" + (f" at strength {', '.join(words)}" if words else "")
        for method, words in found.items()
    ]
