"""The result of a run in a few lines: the verdict in two sentences, and what a notebook shows."""

from __future__ import annotations

from hansfree._internal.files import open_templates
from hansfree.cavs.diagnostics import Diagnosis
from hansfree.evaluation import Results, method_title, shown_variant
from hansfree.pipeline import Depth
from hansfree.report.direction import describe_depth, describe_diagnosis
from hansfree.report.images import before_after, show_heatmaps
from hansfree.report.summary import summarize, write_number
from hansfree.report.text import SENTENCES, write_verdict

_WORDS = SENTENCES["result"]
_IMAGES = 3  # with heatmaps


def write_two_sentences(results: Results, best: str | None) -> tuple[str, str]:
    """Return the verdict on the best method; the second sentence names the class that lost significantly, if any."""
    text = write_verdict(results)
    if text.failure or best is None:
        return text.failure or (*text.advice, _WORDS["none"])[0], _WORDS["original"]
    head, *rest = text.sentences
    second = rest[0] if rest else _WORDS["model"].format(method=method_title(best))
    if not rest and results.meta["recommended"] is None:
        second = _WORDS["not recommended"].format(method=method_title(best))
    if text.loss.is_significant:
        loss = text.loss.sentence
        second = f"{second.rstrip('.')}; {loss[:1].lower()}{loss[1:]}"
    return f"{text.headline.rstrip('.')}: {head[:1].lower()}{head[1:]}", second


def describe_diagnostics(direction: Diagnosis, depth: Depth | None, family: str | None, cost: str | None) -> str:
    """Say how far a direction can be trusted, how deep the artifact sits, and what followed from that; by lines."""
    lines = [
        describe_diagnosis(direction),
        "" if depth is None else describe_depth(depth),
        "" if family is None else _WORDS[family],
        "" if cost is None else _WORDS["cost"].format(cost=cost),
    ]
    return "\n".join(filter(None, lines))


def write_notebook(results: Results, verdict: str) -> str:
    """Return the verdict, three scores with intervals, and heatmaps before and after, as HTML for a cell."""
    shown, summary = shown_variant(results), summarize(results)
    template = open_templates("report", is_html=True).get_template("notebook.html.jinja")
    return template.render(
        badge=summary.badge,
        verdict=verdict,
        tiles=summary.tiles if shown else (),
        write_number=write_number,
        before_after=before_after(show_heatmaps(results, shown.method), shown.method, most=_IMAGES) if shown else (),
        method=results.title(shown) if shown else "",
    )
