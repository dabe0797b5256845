"""Extrapolate measured rates to a large dataset: bytes, hours and price per stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.speed.measures import Measure
from hansfree._internal.files import format_bytes
from hansfree.corrections import RRR, RRClArC
from hansfree.corrections.training import FineTuning
from hansfree.errors import OptionError
from hansfree.report import markdown_table

_HEATMAPS = 1_000  # of test images, as many as a report looks at


@dataclass(frozen=True)
class Machine:
    """Hardware relative to the measured machine; all factors are assumptions."""

    name: str
    arithmetic: float = 1.0  # speed of models
    reading: float = 1.0  # speed of reading and decoding, one process per core
    dollars_per_hour: float | None = None


@dataclass(frozen=True)
class Stage:
    """One stage of the work on the measured machine."""

    name: str
    reading: float = 0.0  # seconds
    arithmetic: float = 0.0  # seconds
    bytes: float | None = None  # written to disk

    def hours(self, machine: Machine) -> float:
        """Return the hours on another machine, reading and arithmetic in sequence (the worst case)."""
        return (self.reading / machine.reading + self.arithmetic / machine.arithmetic) / 3600


def plan_stages(measures: Mapping[str, Measure], model: str, *, images: int, marked: int) -> list[Stage]:
    """Return the stages of a correction of many images.

    Args:
        measures: Of a whole benchmark (:func:`read_measures`): the benchmarks path, floor, rrr, lrp, cache and growth.
        images: How many there are to train on.
        marked: How many of them carry the artifact: RRR's penalty costs time for these only.
    """

    def value(name: str) -> float:
        key = f"{model}.{name}"
        if key not in measures:
            raise OptionError(f"The plan needs {key}, which was not measured: run all benchmarks of {model}.")
        return measures[key].value

    epochs, strengths = FineTuning().epochs, len(RRClArC.info.strengths)
    reading = images / value("jpeg_images_per_second")
    trained = images * epochs * strengths
    # RRR trains the head on all images, in all of its inputs; a penalised step of the head stands for a plain one.
    plain = "plain_head_seconds_per_image"
    head = value(plain if f"{model}.{plain}" in measures else "head_seconds_per_image")
    return [
        Stage("the pass", reading, images / value("cache_images_per_second"), images * value("cache_bytes_per_image")),
        Stage("values and tangents", bytes=images * value("features_bytes_per_image")),
        Stage(
            f"RR-ClArC, {strengths} strengths x {epochs} epochs", arithmetic=trained * value("head_seconds_per_image")
        ),
        Stage(
            f"RRR, {len(RRR.info.strengths)} strengths x {epochs} epochs",
            arithmetic=epochs
            * (marked * value("rrr_grid_seconds_per_image") + images * len(RRR.info.strengths) * head),
        ),
        Stage(f"{_HEATMAPS:,} heatmaps", arithmetic=_HEATMAPS / value("heatmaps_per_second")),
        Stage(
            f"the paper's procedure, {strengths} x {epochs} epochs, to compare",
            strengths * epochs * reading,
            trained * value("paper_seconds_per_image"),
        ),
    ]


def write_plan(
    measures: Mapping[str, Measure], models: Sequence[str], machines: Sequence[Machine], *, images: int, marked: int
) -> str:
    """Return a Markdown table: for every model and stage the bytes, and for every machine the hours and their price."""
    lines = []
    for model in models:
        for stage in plan_stages(measures, model, images=images, marked=marked):
            size = "" if stage.bytes is None else format_bytes(stage.bytes)
            lines.append([model, stage.name, size, *(_cell(stage.hours(machine), machine) for machine in machines)])
    return markdown_table(["model", "stage", "on disk", *(machine.name for machine in machines)], lines) + "\n"


def _cell(hours: float, machine: Machine) -> str:
    if hours == 0:
        return ""  # limited by the disk, which was not measured
    price = "" if machine.dollars_per_hour is None else f", ${hours * machine.dollars_per_hour:,.2f}"
    return f"{hours:,.0f} h{price}" if hours >= 100 else f"{hours:.2g} h{price}"
