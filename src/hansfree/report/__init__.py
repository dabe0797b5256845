"""The report of a run: one self-contained HTML file, made from the run folder alone."""

from hansfree.report.advice import describe_advice as describe_advice, describe_similarity as describe_similarity
from hansfree.report.direction import (
    describe_diagnosis as describe_diagnosis,
    describe_finding as describe_finding,
    describe_suspects as describe_suspects,
)
from hansfree.report.notebook import (
    describe_diagnostics as describe_diagnostics,
    write_notebook as write_notebook,
    write_two_sentences as write_two_sentences,
)
from hansfree.report.numbers import (
    MISSING as MISSING,
    interval_at_end as interval_at_end,
    percent as percent,
    unit_of as unit_of,
    write_p as write_p,
    write_points as write_points,
    write_stderr as write_stderr,
    write_value as write_value,
)
from hansfree.report.page import write_report as write_report
from hansfree.report.summary import (
    Badge as Badge,
    Line as Line,
    Number as Number,
    Summary as Summary,
    Tile as Tile,
    summarize as summarize,
    write_number as write_number,
)
from hansfree.report.tables import (
    Mark as Mark,
    group_title as group_title,
    markdown_table as markdown_table,
    marks_of as marks_of,
)
from hansfree.report.text import (
    describe_claims as describe_claims,
    describe_loss as describe_loss,
    describe_notes as describe_notes,
    describe_reason as describe_reason,
    describe_rejection as describe_rejection,
    describe_selection as describe_selection,
    describe_verdict as describe_verdict,
    without_folders as without_folders,
    write_verdict as write_verdict,
)
