"""The paper's tables as Markdown, its numbers beside ours wherever they are given."""

from hansfree.reproduce.tables.alignments import write_alignments
from hansfree.reproduce.tables.changes import write_changes
from hansfree.reproduce.tables.comparison import COMPARISON_COLUMNS, comparison_lines, write_comparison
from hansfree.reproduce.tables.corrections import write_details, write_table1
from hansfree.reproduce.tables.differences import write_differences
from hansfree.reproduce.tables.epochs import write_epochs
from hansfree.reproduce.tables.groups import write_groups
from hansfree.reproduce.tables.path import write_path
from hansfree.reproduce.tables.strengths import write_strengths
from hansfree.reproduce.tables.times import write_times
from hansfree.reproduce.tables.tournament import write_tournament
from hansfree.reproduce.tables.variants import write_variants

__all__ = [
    "COMPARISON_COLUMNS",
    "comparison_lines",
    "write_alignments",
    "write_changes",
    "write_comparison",
    "write_details",
    "write_differences",
    "write_epochs",
    "write_groups",
    "write_path",
    "write_strengths",
    "write_table1",
    "write_times",
    "write_tournament",
    "write_variants",
]
