"""``hansfree suspects``, ``label``, ``monitor`` and ``export``."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, cast

import typer

from hansfree.cli.terminal import app, console, errors, progress_bars

_SHOWN = 3


@app.command()
def suspects(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="The run file; it needs no artifact column.")],
    by: Annotated[
        str, typer.Option(help="What images are clustered by: activations, or relevance (where the model looks).")
    ] = "activations",
) -> None:
    """Search for artifacts: unusual clusters within classes, and image properties that correlate with a class."""
    from hansfree.discovery import By, open_unlabelled_images, search_suspects
    from hansfree.errors import check_choice
    from hansfree.pipeline.config import read_run_file

    check_choice("--by", by, By)
    with progress_bars() as progress:
        opened = open_unlabelled_images(read_run_file(file), progress=progress)
        search = search_suspects(opened, by=cast(By, by), progress=progress)
    found = search.suspects
    console.print(found.verdict)
    for rank, cluster in found.listed[:_SHOWN]:
        console.print(f"cluster {rank}: {cluster.sentence}")
    for each in found.listed_properties[:_SHOWN]:
        console.print(f"{each.name}: {each.sentence}")
    console.print(f"page: {search.page}")
    if search.lists:
        console.print(f"To label from these clusters: hansfree label {file}")


@app.command()
def label(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.yaml", help="The run file; its table needs no artifact column yet.")
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0: any free port.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the page's address.")] = False,
) -> None:
    """Label images with the artifact in your browser; after five labels all images are ranked. Resumes."""
    import webbrowser

    from hansfree.discovery.label.server import check_installed, serve, write_redirect
    from hansfree.discovery.label.session import Session, open_labelling
    from hansfree.pipeline.config import read_run_file

    check_installed()
    run = read_run_file(file)

    def ready(address: str) -> None:
        console.print(f"The page: {address}")
        console.print("Ctrl-C stops the server; every label is saved at once.")
        if not no_browser:
            folder = until_the_end.enter_context(TemporaryDirectory(prefix="hansfree-label-"))  # for this user only
            webbrowser.open(write_redirect(Path(folder), address).as_uri())

    with ExitStack() as until_the_end:
        with progress_bars() as progress:
            workspace = until_the_end.enter_context(open_labelling(run, file=file, progress=progress))
        for name, sentence in (*workspace.opened.facts, ("labels", str(workspace.table))):
            console.print(f"{name}: {sentence}")
        session = until_the_end.enter_context(closing(Session(workspace)))
        serve(session, port=port, ready=ready)


@app.command()
def monitor(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a finished `hansfree run`.")],
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES...", help="Images, or folders of images.")],
    out: Annotated[Path | None, typer.Option(help="CSV file to write. [default: stdout]")] = None,
    false_fire_rate: Annotated[
        float, typer.Option(help="Share of images without the artifact that may be flagged.")
    ] = 0.01,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip images that cannot be read.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Flag images with the artifact, as a CSV table, and report the error rates of the flags."""
    from hansfree._internal.files import display_path, refuse_existing, write_text
    from hansfree.export.monitor import monitor_run, to_csv

    if out is not None:
        refuse_existing(out, force=force)
    with progress_bars() as progress:
        fitted = monitor_run(run, false_fire_rate=false_fire_rate, progress=progress)
        scored, skipped = fitted.score_images(images, skip_bad=skip_bad, progress=progress)
    count = sum(one.is_flagged for one in scored)
    # Only the table goes to stdout, which another program may read.
    for sentence in (*skipped, f"{count} of {len(scored)} images are flagged.", fitted.monitor.describe()):
        errors.print(sentence)
    of = f", for the network corrected by {fitted.network} alone" if fitted.network else ""
    if fitted.unreadable:
        of = f", for the original model: the network corrected by {fitted.unreadable} no longer shows the artifact"
    errors.print(f"The monitor is stored in {display_path(fitted.file)}{of}.")
    if out is None:
        console.print(to_csv(scored), end="")
    else:
        write_text(out, to_csv(scored))
        console.print(f"table: {display_path(out)}")


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Directory of a finished run.")],
    method: Annotated[str | None, typer.Argument(help="Correction to export. [default: the recommended one]")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the files. [default: RUN/exported/METHOD]")] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Write model.onnx too; needs the extra onnx.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an earlier export.")] = False,
) -> None:
    """Export a corrected model as safetensors with the original keys, verified, with a model card."""
    from hansfree.evaluation import load_results, method_title
    from hansfree.export.run import export_run
    from hansfree.report import describe_rejection, describe_verdict

    done = export_run(run, method, out=out, onnx=onnx, force=force)
    weights, results = done.weights, load_results(run)
    verdict, variant = describe_verdict(results, done.method), results.variant(done.method)
    reasons = (describe_rejection(results, variant) if variant else "") or verdict.reasons
    console.print(weights.folding.sentence)
    same = "exactly" if weights.difference == 0 else f"up to differences of {weights.difference:.2g}"
    console.print(
        f"Checked on {weights.images} images: loaded into a copy of the original, the weights give the logits that the "
        f"run evaluated as {method_title(done.method)}, {same}."
    )
    console.print(f"Verdict of the run: {': '.join(filter(None, (verdict.level, reasons.rstrip('.'))))}.")
    for word, path in (("weights", weights.weights), ("loader", weights.loader), ("onnx", done.onnx)):
        if path is not None:
            console.print(f"{word}: {path}")
    console.print(f"card: {done.card}")
