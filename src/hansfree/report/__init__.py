"""The report of a run: one self-contained HTML file, made from the run folder alone."""

from hansfree.report.advice import describe_advice, describe_similarity
from hansfree.report.numbers import (
    MISSING,
    interval_at_end,
    percent,
    unit_of,
    write_p,
    write_points,
    write_stderr,
    write_value,
)
from hansfree.report.page import write_report
from hansfree.report.tables import Mark, group_title, markdown_table, marks_of
from hansfree.report.text import (
    describe_loss,
    describe_notes,
    describe_rejection,
    describe_verdict,
    without_folders,
    write_verdict,
)

__all__ = [
    "MISSING",
    "Mark",
    "describe_advice",
    "describe_loss",
    "describe_notes",
    "describe_rejection",
    "describe_similarity",
    "describe_verdict",
    "group_title",
    "interval_at_end",
    "markdown_table",
    "marks_of",
    "percent",
    "unit_of",
    "without_folders",
    "write_p",
    "write_points",
    "write_report",
    "write_stderr",
    "write_value",
    "write_verdict",
]
