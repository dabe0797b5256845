"""``hansfree export``: the corrected model as the user's own weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hansfree.cli.app import app
from hansfree.cli.terminal import console


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    method: Annotated[str | None, typer.Argument(help="Which correction. [default: what the run recommends]")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the files. [default: RUN/exported/METHOD]")] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Write model.onnx too; needs the extra onnx.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace what an earlier export wrote.")] = False,
) -> None:
    """Write a corrected model as safetensors with the original keys, checked, with a model card."""
    from hansfree.export.run import export_run

    done = export_run(run, method, out=out, onnx=onnx, force=force)
    weights = done.weights
    console.print(weights.folding.sentence, soft_wrap=True, highlight=False)
    same = "exactly" if weights.difference == 0 else f"up to differences of {weights.difference:.2g}"
    console.print(
        f"Checked on {weights.images} images: loaded into a copy of the original, it gives the logits of the run's "
        f"corrected model, {same}.",
        soft_wrap=True,
        highlight=False,
    )
    for word, path in (("weights", weights.weights), ("loader", weights.loader), ("onnx", done.onnx)):
        if path is not None:
            console.print(f"{word}: {path}", soft_wrap=True)
    console.print(f"card: {done.card}", soft_wrap=True)
