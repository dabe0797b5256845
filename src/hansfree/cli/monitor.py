"""``hansfree monitor``: which pictures show the artifact that a run has learned to see."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hansfree.cli.app import app
from hansfree.cli.terminal import console, errors, progress_bars


@app.command()
def monitor(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished `hansfree run`.")],
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES...", help="Pictures, or folders of them.")],
    out: Annotated[Path | None, typer.Option(help="CSV file to write. [default: to the terminal]")] = None,
    false_fire_rate: Annotated[
        float, typer.Option(help="How often an image without the artifact may be flagged.")
    ] = 0.01,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Go on without pictures that cannot be read.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Flag pictures that show the artifact, as a CSV table; say how far the flags can be trusted."""
    from hansfree._internal.files import refuse_existing, tell_path, write_text
    from hansfree.runfile.running import monitor_run, table_of

    if out is not None:
        refuse_existing(out, force=force)
    with progress_bars() as progress:
        fitted = monitor_run(run, false_fire_rate=false_fire_rate, progress=progress)
        looked, skipped = fitted.look_at(images, skip_bad=skip_bad, progress=progress)
    count = sum(one.is_flagged for one in looked)
    # Only the table goes to the standard output, which another program may read.
    told = [*skipped, f"{count} of {len(looked)} images are flagged.", fitted.monitor.describe()]
    told.append(f"The monitor is kept in {tell_path(fitted.file)}.")
    for sentence in told:
        errors.print(sentence, soft_wrap=True, highlight=False)
    if out is None:
        console.print(table_of(looked), end="", soft_wrap=True, highlight=False)
    else:
        write_text(out, table_of(looked))
        console.print(f"table: {tell_path(out)}", soft_wrap=True, highlight=False)
