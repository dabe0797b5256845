"""Ways to unlearn a bias, one class each."""

# ruff: noqa: I001 (imported in the paper's order, which is the order of tables)

from hansfree.corrections.base import CAVCorrection, Correction
from hansfree.corrections.vanilla import Vanilla
from hansfree.corrections.rrr import RRR
from hansfree.corrections.clarc import AClArC, PClArC
from hansfree.corrections.rr_clarc import RRClArC
from hansfree.corrections.projection import Projection

__all__ = ["RRR", "AClArC", "CAVCorrection", "Correction", "PClArC", "Projection", "RRClArC", "Vanilla"]
