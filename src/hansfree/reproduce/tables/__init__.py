"""The paper's tables as Markdown, its numbers beside ours wherever they are given."""

from hansfree.reproduce.tables.alignments import write_alignments
from hansfree.reproduce.tables.changes import CHANGE, GROUPS, write_changes
from hansfree.reproduce.tables.comparison import COMPARISON_COLUMNS, comparison_lines
from hansfree.reproduce.tables.corrections import write_details, write_table1
from hansfree.reproduce.tables.groups import write_groups
from hansfree.reproduce.tables.strengths import write_strengths
from hansfree.reproduce.tables.times import SECONDS, seconds_of, write_times
from hansfree.reproduce.tables.variants import write_variants

__all__ = [
    "CHANGE",
    "COMPARISON_COLUMNS",
    "GROUPS",
    "SECONDS",
    "comparison_lines",
    "seconds_of",
    "write_alignments",
    "write_changes",
    "write_details",
    "write_groups",
    "write_strengths",
    "write_table1",
    "write_times",
    "write_variants",
]
