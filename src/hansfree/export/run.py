"""A whole delivery from a run folder: weights, card, and where wanted ONNX."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from hansfree.errors import RunError
from hansfree.export.card import write_card
from hansfree.export.onnx import check_onnx, export_onnx
from hansfree.export.reading import (
    adapt_as_evaluated,
    check_evaluated,
    open_corrected,
    open_example,
    open_model,
    read_run,
)
from hansfree.export.saving import Exported, export_model
from hansfree.models import returns_logits


@dataclass(frozen=True)
class ExportedRun:
    """What was written."""

    method: str
    weights: Exported
    card: Path
    onnx: Path | None


def export_run(
    run: Path,
    method: str | None = None,
    *,
    original: nn.Module | None = None,
    out: Path | None = None,
    onnx: bool = False,
    force: bool = False,
) -> ExportedRun:
    """Export a corrected model of a finished run with its card.

    Args:
        run: The run folder.
        method: Whose weights; None is the one that the run recommends, or RR-ClArC.
        original: The model as it came; None opens the one that the run names.
        out: A folder; None is ``exported/METHOD`` in the run folder.
        onnx: Write ``model.onnx`` too.
        force: Replace what an earlier export wrote.
    """
    finished = read_run(run)
    method = finished.method_to_export(method)
    folder = out or run / "exported" / method
    weights, card, graph = folder / "model.safetensors", folder / "MODEL_CARD.md", folder / "model.onnx"
    there = [path.name for path in (weights, card, graph) if path.exists()]
    if there and not force:
        raise RunError(f"{folder} already holds {', '.join(there)}. Choose another folder with --out, or use --force.")
    if onnx:
        check_onnx()
    example = open_example(finished)
    own = original or open_model(finished)
    original = adapt_as_evaluated(finished, own, example)
    corrected = open_corrected(finished, method, original, example)
    is_checked = check_evaluated(finished, method, corrected, example)
    exported = export_model(corrected, weights, original=original, example=example, method=method)
    if onnx:
        # As the user's own model answers; only logits inside an object have to be taken out of it.
        handed = open_corrected(finished, method, own, example) if returns_logits(own, example) else corrected
        export_onnx(handed, graph, example)
    else:
        graph.unlink(missing_ok=True)  # of an earlier export: beside new weights it would be another model
    write_card(card, exported, finished, method, is_checked=is_checked)
    return ExportedRun(method, exported, card, graph if onnx else None)
