"""The model card beside exported weights: what was corrected, with what data, scores before and after, limits."""

from __future__ import annotations

import hashlib
import math
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from hansfree.corrections import Correction
from hansfree.export.reading import FinishedRun
from hansfree.export.saving import Exported
from hansfree.files import write_text
from hansfree.metrics import Metric
from hansfree.report.reading import ORIGINAL, method_title
from hansfree.report.usable import objection_to
from hansfree.results import Row
from hansfree.studies import SETS

_PACKAGES = ("hansfree", "torch", "safetensors")


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
    environment = Environment(
        loader=PackageLoader("hansfree", "export"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["cell"] = _cell
    member = Correction.members().get(method)
    results = run.results
    meta, variant = results.meta, results.variant(method)
    text = environment.get_template("MODEL_CARD.md.jinja").render(
        meta=meta,
        method=method_title(method),
        what=(member.__doc__ or "").splitlines()[0] if member else "",
        biased_class=_class_name(meta),
        cav=next((row.cav for row in run.chosen(method) if row.cav), None),
        choice=results.selection.get(method, {}),
        objection=objection_to(results, variant) if variant else "",
        notes=results.notes(),
        counts=meta.get("counts") or [],
        sizes=[(name.replace("_", " "), meta[f"n_{name}"]) for name in SETS if meta.get(f"n_{name}") is not None],
        scores=compare_scores(run.chosen(ORIGINAL), run.chosen(method)),
        unclaimed=[claim["sentence"] for claim in meta.get("claims") or [] if not claim["can_be_made"]],
        unknown=[(_label(each.metric, each.group), str(each), each.reason) for each in results.unknown],
        exported=exported,
        is_checked=is_checked,
        weights_hash=hashlib.sha256(exported.weights.read_bytes()).hexdigest(),
        ran_with=meta.get("versions") or {},
        exported_with={"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
    )
    write_text(path, text)


def compare_scores(before: Iterable[Row], after: Iterable[Row]) -> list[ScoreLine]:
    """Return the scores of the model as it came and of the corrected one, one line per score that either has."""
    rows = [{(row.metric, row.group): row for row in side} for side in (before, after)]
    lines = []
    for metric, group in dict.fromkeys([*rows[1], *rows[0]]):
        member = Metric.members().get(metric)
        pair = [side.get((metric, group)) for side in rows]
        counts = dict.fromkeys(f"{row.n:,}" for row in pair if row is not None and row.n is not None)
        lines.append(
            ScoreLine(
                label=_label(metric, group),
                ideal=f"{member.ideal:g}" if member else "",
                before=_written(pair[0]),
                after=_written(pair[1]),
                n=" / ".join(counts),
            )
        )
    return lines


def _label(metric: str, group: str | None) -> str:
    member = Metric.members().get(metric)
    label = member.label if member else metric
    return f"{label} ({group})" if group else label


def _class_name(meta: dict[str, Any]) -> str:
    biased, names = meta.get("biased_class"), meta.get("class_names") or ()
    if isinstance(biased, int) and 0 <= biased < len(names):
        return f"{names[biased]} (class {biased})"
    return "" if biased is None else str(biased)


def _written(row: Row | None) -> str:
    if row is None or not math.isfinite(row.value):
        return "not known"
    has_error = row.stderr is not None and math.isfinite(row.stderr)
    return f"{row.value:.3g} ± {row.stderr:.2g}" if has_error else f"{row.value:.3g}"


def _cell(value: object) -> str:
    """Keep a name with a bar or a line break from breaking the table."""
    return " ".join(str(value).split()).replace("|", "\\|")
