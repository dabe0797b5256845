"""Advice of a run in words: which model to use, and whether inserted and natural artifacts agree."""

from __future__ import annotations

from hansfree._internal.files import open_templates
from hansfree.corrections import RRClArC, Vanilla
from hansfree.evaluation import Results, takes_out_direction
from hansfree.pipeline import InsertionSimilarity
from hansfree.reasons import Advice
from hansfree.report.text import SENTENCES, describe_rejection, describe_selection, describe_verdict


def describe_advice(results: Results, advice: Advice) -> tuple[str, ...]:
    """Return the paragraphs on the recommended model."""
    variant, methods = results.variant(advice.best or ""), [name for name in results.selection if name != Vanilla.name]
    without_direction = [name for name in advice.not_compared if takes_out_direction(name)]
    template = open_templates("report", is_html=False).get_template("advice.txt.jinja")
    text = template.render(
        advice=advice,
        meta=results.meta,
        first=RRClArC.name,
        without_direction=without_direction,
        deep=[name for name in advice.not_compared if name not in without_direction],
        reasons=[f"{name}: {describe_selection(results, name).reason}" for name in methods],
        rejection=describe_rejection(results, variant) if variant else "it has no score on test images",
        doubt=describe_verdict(results, advice.best or "").reasons,
    )
    return tuple(line for line in text.splitlines() if line)


def describe_similarity(found: InsertionSimilarity) -> str:
    """Return how the inserted artifact compares with the natural one."""
    words = SENTENCES["similarity"]
    if not found.is_measurable:
        return words["noisy"].format(found=found)
    comparison = words["comparison"].format(found=found)
    return f"{comparison} {words['differs']}" if found.differs else comparison
