"""The paper's figures: from tidy rows and images to drawings, one kind in one file."""

from hansfree.reproduce.figures.alignment import draw_alignments
from hansfree.reproduce.figures.biases import draw_biases, draw_hidden_bits
from hansfree.reproduce.figures.cav_types import draw_cav_types
from hansfree.reproduce.figures.changes import draw_changes
from hansfree.reproduce.figures.curves import StrengthMaps, draw_strength_curves
from hansfree.reproduce.figures.epochs import draw_epochs
from hansfree.reproduce.figures.extremes import draw_extremes
from hansfree.reproduce.figures.heatmaps import draw_localisation, draw_method_heatmaps
from hansfree.reproduce.figures.scatter import draw_scatter
from hansfree.reproduce.figures.targets import draw_targets
from hansfree.reproduce.figures.times import draw_times
from hansfree.reproduce.figures.tournament import draw_tournament

__all__ = [
    "StrengthMaps",
    "draw_alignments",
    "draw_biases",
    "draw_cav_types",
    "draw_changes",
    "draw_epochs",
    "draw_extremes",
    "draw_hidden_bits",
    "draw_localisation",
    "draw_method_heatmaps",
    "draw_scatter",
    "draw_strength_curves",
    "draw_targets",
    "draw_times",
    "draw_tournament",
]
