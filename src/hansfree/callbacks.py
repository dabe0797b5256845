"""Callbacks of a run: the base class, and those for TensorBoard, MLflow and Weights & Biases."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hansfree.errors import import_optional
from hansfree.evaluation import Row

if TYPE_CHECKING:
    from hansfree.result import Result


class Value(NamedTuple):
    """One number to plot: the name of its curve, the step on it, and the number."""

    name: str
    step: int
    value: float


@dataclass(frozen=True)
class Stage:
    """A finished stage: the CAVs, the original model, a correction, or some of its strengths (no scores)."""

    name: str
    seconds: float
    scores: tuple[Row, ...] = ()

    @classmethod
    def of(cls, name: str, seconds: float, result: Any) -> Stage:
        """Return what the run store knows of a stage."""
        rows = result.get("rows", ()) if isinstance(result, Mapping) else result if isinstance(result, list) else ()
        are_rows = all(isinstance(row, Mapping) and "metric" in row and "method" in row for row in rows)
        return cls(name, seconds, tuple(Row(**row) for row in rows) if are_rows else ())

    def values(self) -> Iterator[Value]:
        """Yield the numbers to plot: validation scores by epoch for each strength, test scores of chosen models."""
        for row in self.scores:
            if row.group is not None or not math.isfinite(row.value):
                continue
            if row.split == "val":
                strength = "" if row.strength is None else f"/strength {row.strength:g}"
                yield Value(f"val/{row.method}{strength}/{row.metric}", row.epoch or 0, row.value)
            elif row.chosen:
                yield Value(f"test/{row.method}/{row.metric}", 0, row.value)


class Callback:
    """Hooks that a run calls; override what you need, and pass an instance to `hansfree.unlearn`.

    Examples:
        >>> class Names(Callback):
        ...     def on_stage(self, stage):
        ...         print(stage.name, len(stage.scores))
        >>> Names().on_stage(Stage("rr-clarc", 1.5))
        rr-clarc 0
    """

    def on_start(self, settings: Mapping[str, Any], facts: Sequence[tuple[str, str]]) -> None:
        """Take the settings of the run, as in a run file, and the facts about model and data, before any training."""

    def on_stage(self, stage: Stage) -> None:
        """Take a stage that has just finished; on resuming, not called for stages that are stored."""

    def on_end(self, result: Result) -> None:
        """Take the result."""

    def on_error(self, error: BaseException) -> None:
        """Take what stopped the run after its start; there is no result then."""


class TensorBoard(Callback):
    """Write scalars, settings and the verdict to a folder that TensorBoard shows (``pip install tensorboard``).

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> from hansfree.callbacks import TensorBoard
        >>> isinstance(TensorBoard("logs"), Callback)
        True
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = folder

    def on_start(self, settings: Mapping[str, Any], facts: Sequence[tuple[str, str]]) -> None:
        """Open the folder."""
        self._writer = import_optional("torch.utils.tensorboard", extra="tensorboard").SummaryWriter(str(self.folder))
        self._writer.add_text("settings", "\n".join(f"    {key}: {value}" for key, value in _flat(settings)))

    def on_stage(self, stage: Stage) -> None:
        """Write the stage's scores."""
        for name, step, value in stage.values():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def on_end(self, result: Result) -> None:
        """Write the verdict, and close the folder."""
        self._writer.add_text("verdict", str(result.verdict))
        self._writer.close()

    def on_error(self, error: BaseException) -> None:
        """Close the folder."""
        self._writer.close()


class MLflow(Callback):
    """Log a run to MLflow: settings as parameters, scores as metrics, the report as an artifact.

    Args:
        options: of ``mlflow.start_run``, such as ``run_name``.

    Examples:
        >>> isinstance(MLflow(run_name="unlearn"), Callback)
        True
    """

    def __init__(self, **options: Any) -> None:
        self.options = options

    def on_start(self, settings: Mapping[str, Any], facts: Sequence[tuple[str, str]]) -> None:
        """Start the run."""
        self._mlflow = import_optional("mlflow", extra="mlflow")
        self._run = self._mlflow.start_run(**self.options)
        self._mlflow.log_params({key: str(value)[:_MAX_PARAMETER] for key, value in _flat(settings)})

    def on_stage(self, stage: Stage) -> None:
        """Log the stage's scores."""
        for name, step, value in stage.values():
            self._mlflow.log_metric(name, value, step=step)

    def on_end(self, result: Result) -> None:
        """Log verdict and report, and end the run."""
        self._mlflow.set_tag("verdict", str(result.verdict)[:_MAX_PARAMETER])
        self._mlflow.log_artifact(str(result.directory / "report.html"))
        self._mlflow.end_run()

    def on_error(self, error: BaseException) -> None:
        """End the run as failed."""
        self._mlflow.end_run(status="FAILED")


class WandB(Callback):
    """Log a run to Weights & Biases.

    Args:
        options: of ``wandb.init``, such as ``project`` or ``mode="offline"``.

    Examples:
        >>> isinstance(WandB(project="unlearn", mode="offline"), Callback)
        True
    """

    def __init__(self, **options: Any) -> None:
        self.options = options

    def on_start(self, settings: Mapping[str, Any], facts: Sequence[tuple[str, str]]) -> None:
        """Start the run."""
        self._run = import_optional("wandb", extra="wandb").init(config=dict(_flat(settings)), **self.options)

    def on_stage(self, stage: Stage) -> None:
        """Log the stage's scores; those of one epoch together."""
        values = [*stage.values()]
        for step in sorted({value.step for value in values}):
            self._run.log({value.name: value.value for value in values if value.step == step} | {"epoch": step})

    def on_end(self, result: Result) -> None:
        """Log the verdict, and end the run."""
        self._run.summary["verdict"] = str(result.verdict)
        self._run.finish()

    def on_error(self, error: BaseException) -> None:
        """End the run as failed."""
        self._run.finish(exit_code=1)


_MAX_PARAMETER = 500  # characters that MLflow stores of a parameter


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings by full name, ``section.key``."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
