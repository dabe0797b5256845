"""The model card beside exported weights: what was corrected, with what data, scores before and after, limits."""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hansfree.corrections import Correction, split_name
from hansfree.export.reading import FinishedRun
from hansfree.export.saving import Exported
from hansfree.files import hash_file, write_text
from hansfree.metrics import MIN_GROUP, Metric, Unknown
from hansfree.report.losing import describe_loss
from hansfree.report.numbers import interval_at_end
from hansfree.report.reading import Results, method_title
from hansfree.report.settings import without_folders
from hansfree.report.usable import objection_to
from hansfree.results import ORIGINAL, Row
from hansfree.studies import SETS
from hansfree.templates import open_templates

_PACKAGES = ("hansfree", "torch", "safetensors")
_WORDS = re.compile(r"``([^`]*)``")  # how a docstring marks code
_REJECTED = re.compile(r" \(\d+ rejected\)")  # a number without names: who diverged is told in a line of its own


@dataclass(frozen=True)
class ScoreLine:
    """One score before and after, as the card prints it."""

    label: str
    ideal: str
    before: str
    after: str
    n: str


def write_card(path: Path, exported: Exported, run: FinishedRun, method: str, *, is_checked: bool = False) -> None:
    """Write the card of a run's exported model.

    Args:
        path: Of the card, a Markdown file.
        method: The correction whose weights were exported.
        is_checked: The weights were compared with the logits that the run kept of its evaluation.
    """
    environment = open_templates("export", is_html=False)
    environment.filters["cell"] = _cell
    member = Correction.members().get(split_name(method)[0])
    results = run.results
    meta, variant = results.meta, results.variant(method)
    choice = results.selection.get(method, {})
    text = environment.get_template("MODEL_CARD.md.jinja").render(
        meta=meta,
        model=without_folders(meta.get("model") or ""),
        method=method_title(method),
        what=_WORDS.sub(r"\1", (member.__doc__ or "").splitlines()[0]) if member else "",
        biased_class=_class_name(meta),
        cav=next((row.cav for row in run.chosen(method) if row.cav), None),
        judged_along=meta.get("cav") if split_name(method)[1] else None,
        choice=choice,
        reason=_REJECTED.sub("", results.with_class_names(str(choice.get("reason", "")))),
        rule=results.with_class_names(str(choice.get("rule", ""))),
        diverged=[f"{strength:g}" for strength in choice.get("diverged") or () if strength is not None],
        objection=objection_to(results, variant) if variant else "",
        judgement=results.rulings.get(method),
        loss=describe_loss(results, variant) if variant else "",
        notes=results.notes(),
        counts=meta.get("counts") or [],
        sizes=[(name.replace("_", " "), meta[f"n_{name}"]) for name in SETS if meta.get(f"n_{name}") is not None],
        scores=compare_scores(run.chosen(ORIGINAL), run.chosen(method), results=results),
        unclaimed=[claim["sentence"] for claim in meta.get("claims") or [] if not claim["can_be_made"]],
        unknown=_unknown(results),
        exported=exported,
        evaluated=f"weights, {method}",
        is_checked=is_checked,
        weights_hash=hash_file(exported.weights),
        ran_with=meta.get("versions") or {},
        exported_with={"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
    )
    write_text(path, text)


def compare_scores(before: Iterable[Row], after: Iterable[Row], *, results: Results) -> list[ScoreLine]:
    """Return the scores of the model as it came and of the corrected one, one line per score that either has.

    Args:
        results: Of the same run; they know what the classes are called.
    """
    rows = [{(row.metric, row.group): row for row in side} for side in (before, after)]
    lines = []
    for metric, group in dict.fromkeys([*rows[1], *rows[0]]):
        member = Metric.members().get(metric)
        pair = [side.get((metric, group)) for side in rows]
        counts = dict.fromkeys(f"{row.n:,}" for row in pair if row is not None and row.n is not None)
        lines.append(
            ScoreLine(
                label=f"{_label(metric)} ({results.with_class_names(group)})" if group else _label(metric),
                ideal=f"{member.ideal:g}" if member else "",
                before=_written(pair[0]),
                after=_written(pair[1]),
                n=" / ".join(counts),
            )
        )
    return lines


def _unknown(results: Results) -> list[str]:
    """Say what cannot be known, one sentence for each reason or, where it is the number of a class's images, metric."""
    whole: dict[str, list[str]] = {}
    of_classes: dict[str, list[Unknown]] = {}
    for each in results.unknown:
        if each.group:
            of_classes.setdefault(_label(each.metric).partition(", ")[0], []).append(each)
        else:
            whole.setdefault(each.reason, []).append(_label(each.metric))
    sentences = [f"{' / '.join(labels)} cannot be known: {reason}." for reason, labels in whole.items()]
    for head, group in of_classes.items():
        named = ", ".join(f"{results.with_class_names(each.group)}{_condition(each)} (n = {each.n})" for each in group)
        reason = group[0].reason if len(group) == 1 else f"at least {MIN_GROUP} images are needed for each"
        sentences.append(f"{head} cannot be known of {named}: {reason}.")
    return sentences


def _condition(unknown: Unknown) -> str:
    condition = _label(unknown.metric).partition(", ")[2]
    return f", {condition}" if condition else ""


def _label(metric: str) -> str:
    member = Metric.members().get(metric)
    return member.label if member else metric


def _class_name(meta: dict[str, Any]) -> str:
    biased, names = meta.get("biased_class"), meta.get("class_names") or ()
    if isinstance(biased, int) and 0 <= biased < len(names):
        return f"{names[biased]} (class {biased})"
    return "" if biased is None else str(biased)


def _written(row: Row | None) -> str:
    if row is None or not math.isfinite(row.value):
        return "not known"
    if interval := interval_at_end(row):
        return f"{row.value:.3g} ({interval[0]:.2g} to {interval[1]:.2g})"
    has_error = row.stderr is not None and math.isfinite(row.stderr) and row.stderr > 0
    return f"{row.value:.3g} ± {row.stderr:.2g}" if has_error else f"{row.value:.3g}"


def _cell(value: object) -> str:
    """Keep a name with a bar or a line break from breaking the table."""
    return " ".join(str(value).split()).replace("|", "\\|")
