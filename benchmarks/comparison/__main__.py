"""Compare correction methods over several resamples of a dataset.

    python -m benchmarks.comparison methods --data synthetic --model demo --repeats 5

Experiments: methods, pairs, refit. The options are those of ``hansfree reproduce``; ``--repeats`` is the number of
resamples. Every result is a stage of a run in OUT/work, so a stopped comparison resumes where it was.
"""

from __future__ import annotations

import typer

import benchmarks.comparison.experiments  # noqa: F401, registers the experiments
from benchmarks import run_app
from hansfree_paper_cli import reproduce

if __name__ == "__main__":
    app = typer.Typer(add_completion=False)
    app.command(help=__doc__)(reproduce)
    run_app(app, "comparison")
