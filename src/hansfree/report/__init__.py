"""The report of a run: one self-contained HTML file, made from the run folder alone."""

from hansfree.report.advice import describe_advice, describe_similarity
from hansfree.report.direction import describe_diagnosis, describe_finding, describe_suspects
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
from hansfree.report.summary import Badge, Line, Number, Summary, Tile, summarize, write_number
from hansfree.report.tables import Mark, group_title, markdown_table, marks_of
from hansfree.report.text import (
    describe_claims,
    describe_loss,
    describe_notes,
    describe_reason,
    describe_rejection,
    describe_selection,
    describe_verdict,
    without_folders,
    write_verdict,
)
