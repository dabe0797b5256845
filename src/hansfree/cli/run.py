"""``hansfree check``, ``run``, ``demo`` and ``report``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hansfree.cli.terminal import (
    ARTIFACTS,
    Address,
    Engine,
    app,
    console,
    new_table,
    progress_bars,
    show_summary,
    show_table,
)

if TYPE_CHECKING:
    from hansfree._internal.progress import Progress
    from hansfree.pipeline.checks import PreparedRun
    from hansfree.pipeline.class_order import ClassOrderCheck
    from hansfree.result import Result

File = Annotated[Path, typer.Argument(metavar="FILE.yaml", help="The run file; `hansfree init` writes one.")]


@app.command()
def check(file: File) -> None:
    """Check a run file without writing anything: keys, files, classes, layer, first predictions."""
    from hansfree.pipeline.checks import estimate_time, prepare_run
    from hansfree.pipeline.config import read_run_file
    from hansfree.pipeline.identity import check_unchanged

    with progress_bars() as progress:
        prepared = prepare_run(read_run_file(file), progress=progress)
        check_unchanged(prepared)
        asked = _check_order(prepared, progress)
        duration = estimate_time(prepared)
    _show_facts(prepared, asked, duration)
    if asked.doubt is not None and asked.doubt.is_order:
        raise typer.Exit(1)
    passed = "All checks passed." if asked.doubt is None else "All other checks passed."
    console.print(f"{passed} Next: hansfree run {file}")


@app.command()
def run(file: File, engine: Engine = "local", address: Address = None) -> None:
    """Diagnose and correct a model, measure what is left of the bias, export the corrected weights; resumes."""
    from hansfree import api
    from hansfree._internal.files import display_path
    from hansfree.pipeline.checks import prepare_run
    from hansfree.pipeline.config import read_run_file
    from hansfree.pipeline.ray import open_executor
    from hansfree.reasons import AdviceCode

    plan, command = read_run_file(file), f"hansfree {shlex.join(sys.argv[1:])}"
    with open_executor(engine, address=address) as executor, progress_bars() as progress:
        prepared = prepare_run(plan, progress=progress)
        is_new = not (plan.out / "config.yaml").exists()  # a resumed run has shown the class order before
        _show_facts(prepared, _check_order(prepared, progress) if is_new else None)
        finished = api.run(prepared, executor=executor, command=command, progress=progress)
    is_proven = finished.advice.code == AdviceCode.RECOMMENDED
    following = f"monitor {display_path(plan.out)} IMAGES" if is_proven else f"label {file}"
    _show_result(finished, next_command=f"hansfree {following}")


def _show_result(result: Result, *, next_command: str) -> None:
    """Print the first screen of the report, what a user should know besides, and where all of it is."""
    from hansfree._internal.files import display_path
    from hansfree.report import summarize, write_verdict

    results = result.files.results
    show_summary(summarize(results))
    verdict = write_verdict(results)
    for line in result.sentences:
        if line not in (verdict.text, verdict.subject):  # which the screen shows
            console.print(line, soft_wrap=False)
    console.print(f"report: {display_path(result.directory / 'report.html')}")
    console.print(f"next: {next_command}")


def _check_order(prepared: PreparedRun, progress: Progress) -> ClassOrderCheck:
    from hansfree.pipeline.class_order import check_class_order

    return check_class_order(prepared.setting.model, prepared.setting.data.val_clean, progress=progress)


def _show_facts(prepared: PreparedRun, asked: ClassOrderCheck | None, duration: str = "") -> None:
    """Print what was found, and the result of the class-order check."""
    from hansfree.report import describe_reason

    table = new_table(left=["", ""])
    table.show_header = False
    table.columns[0].style, table.columns[0].no_wrap = "bold", True
    for name, sentence in prepared.facts:
        table.add_row(name, sentence)
    for warning in prepared.warnings:
        table.add_row("note", f"{describe_reason(warning)}.")
    if duration:
        table.add_row("time", duration)
    if asked is not None:
        table.add_row("answers", asked.sentence)
    show_table(table)
    if asked is not None and asked.doubt is not None:
        console.print(asked.doubt.sentence)
        if asked.doubt.is_order:
            console.print("Fix that first: while the order looks wrong, a run recommends no model.")


@app.command()
def demo(
    artifact: Annotated[str, typer.Option(help=f"One of {', '.join(ARTIFACTS)}.")] = "timestamp",
    model: Annotated[str, typer.Option(help="Architecture; an unknown name lists all.")] = "demo",
    size: Annotated[int, typer.Option(help="Image size in pixels.")] = 64,
    seed: Annotated[int, typer.Option(help="Seed of data, training and correction.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Run directory; the same command resumes. "
            "[default: hansfree-demo, followed by options that differ from their defaults]"
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer images and epochs.")] = False,
) -> None:
    """Train a network on biased images, diagnose the shortcut, correct it with six methods, write a report."""
    from hansfree.demo import Demo

    options = {"artifact": artifact, "model": model, "size": size, "seed": seed}
    plan = Demo.quick(**options) if quick else Demo(**options)  # type: ignore[arg-type]
    changed = [f"{name}-{value}" for name, value in options.items() if value != getattr(Demo, name)]
    folder = out or Path("-".join(["hansfree-demo", *(["quick"] if quick else []), *changed]))
    with progress_bars() as progress:
        done = plan.run(folder, command=f"hansfree {shlex.join(sys.argv[1:])}", progress=progress)
    _show_result(done, next_command="hansfree init my.yaml")


@app.command()
def report(run: Annotated[Path, typer.Argument(help="Directory of a finished run.")]) -> None:
    """Write the report of a finished run again."""
    from hansfree.report import write_report

    console.print(f"report: {write_report(run)}")
