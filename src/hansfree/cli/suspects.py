"""``hansfree suspects``: what looks odd, where nobody knows the artifact yet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from hansfree.cli.app import app
from hansfree.cli.terminal import console, progress_bars

_SHOWN = 3


@app.command()
def suspects(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="The run file; it needs no artifact column.")],
    by: Annotated[
        str, typer.Option(help="What images are clustered by: activations, or relevance (where the model looks).")
    ] = "activations",
) -> None:
    """Look for what the model may be using: odd clusters within classes, and image properties that go with a class."""
    from hansfree.errors import check_choice
    from hansfree.runfile import read_run_file
    from hansfree.runfile.discovery import By, look_for_suspects, open_unlabelled

    check_choice("--by", by, By)
    with progress_bars() as progress:
        opened = open_unlabelled(read_run_file(file), progress=progress)
        looked = look_for_suspects(opened, by=cast(By, by), progress=progress)
    found = looked.suspects
    console.print(found.verdict, soft_wrap=True, markup=False, highlight=False)
    clusters = enumerate(found.clusters[:_SHOWN], start=1)
    odd = [(f"cluster {rank}", each.sentence) for rank, each in clusters if each.level != "none"]
    odd += [(each.name, each.sentence) for each in found.properties[:_SHOWN] if each.level != "none"]
    for name, sentence in odd:
        console.print(f"{name}: {sentence}", soft_wrap=True, markup=False, highlight=False)
    console.print(f"page: {looked.page}", soft_wrap=True, highlight=False)
    if looked.lists:
        console.print(f"To mark from these clusters: hansfree label {file}", soft_wrap=True, highlight=False)
