"""Ways to unlearn a bias, one class each."""

# ruff: noqa: I001 (imported in the paper's order, which is the order of tables; then rivals that it does not have)

from hansfree.corrections.base import CAVCorrection, Correction
from hansfree.corrections.vanilla import Vanilla
from hansfree.corrections.rrr import RRR
from hansfree.corrections.clarc import AClArC, PClArC
from hansfree.corrections.rr_clarc import RRClArC
from hansfree.corrections.rr_clarc import RRClArCStep
from hansfree.corrections.projections import OneSidedPClArC
from hansfree.corrections.projections import RClArC
from hansfree.corrections.projections import LEACE
from hansfree.corrections.dfr import DFR
from hansfree.corrections.pairs import Augmented, LogitPairing, PairCorrection
from hansfree.corrections.clarc import Projection
from hansfree.corrections.base import along_cavs, goes_along_cav, method_named, split_name

__all__ = [
    "DFR",
    "LEACE",
    "RRR",
    "AClArC",
    "Augmented",
    "CAVCorrection",
    "Correction",
    "LogitPairing",
    "OneSidedPClArC",
    "PClArC",
    "PairCorrection",
    "Projection",
    "RClArC",
    "RRClArC",
    "RRClArCStep",
    "Vanilla",
    "along_cavs",
    "goes_along_cav",
    "method_named",
    "split_name",
]
