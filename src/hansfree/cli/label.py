"""``hansfree label``: the page for marking which images carry the artifact."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from hansfree.cli.app import app
from hansfree.cli.terminal import console, progress_bars


@app.command()
def label(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.yaml", help="The run file; its table needs no artifact column yet.")
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the page; 0 takes any that is free.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the page's address.")] = False,
) -> None:
    """Mark the artifact on a page in your browser; after five marks all images are ranked. Resumes."""
    import webbrowser

    from hansfree.label import Session, check_installed, open_material, serve, write_redirect
    from hansfree.runfile import read_run_file

    check_installed()
    run = read_run_file(file)

    def ready(address: str) -> None:
        console.print(f"The page: {address}", soft_wrap=True, markup=False, highlight=False)
        console.print("Ctrl-C ends it; every mark is saved at once.")
        if not no_browser:
            folder = until_the_end.enter_context(TemporaryDirectory(prefix="hansfree-label-"))  # for this user only
            webbrowser.open(write_redirect(Path(folder), address).as_uri())

    with ExitStack() as until_the_end:
        with progress_bars() as progress:
            material = until_the_end.enter_context(open_material(run, file=file, progress=progress))
        for name, sentence in (*material.facts, ("marks", str(material.table))):
            console.print(f"{name}: {sentence}", soft_wrap=True, markup=False, highlight=False)
        session = until_the_end.enter_context(closing(Session(material)))
        serve(session, port=port, ready=ready)
