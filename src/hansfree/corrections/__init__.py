"""Ways to unlearn a bias, one class each."""

from hansfree.corrections.base import CAVCorrection, Correction
from hansfree.corrections.clarc import AClArC, PClArC
from hansfree.corrections.projection import Projection
from hansfree.corrections.rr_clarc import RRClArC
from hansfree.corrections.rrr import RRR
from hansfree.corrections.vanilla import Vanilla

__all__ = ["RRR", "AClArC", "CAVCorrection", "Correction", "PClArC", "Projection", "RRClArC", "Vanilla"]
