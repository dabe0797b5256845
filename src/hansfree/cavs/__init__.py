"""Concept activation vectors: the directions in a layer's activations along which an artifact shows.

cav = SignalCAV().fit(activations, has_artifact)         # a scikit-learn classifier
cav.directions_                                          # (k, channels), orthonormal rows
CAV.named("ridge")                                       # -> RidgeCAV
"""

# ruff: noqa: I001 (imported in the paper's order, which is the order of tables)

from hansfree.cavs.base import CAV
from hansfree.cavs.signal import SignalCAV
from hansfree.cavs.regularised import SVMCAV
from hansfree.cavs.regularised import RidgeCAV
from hansfree.cavs.regularised import LassoCAV
from hansfree.cavs.regularised import LogisticCAV
from hansfree.cavs.pair import PairCAV
from hansfree.cavs.joint import JointCAV, class_direction, join_cavs
from hansfree.cavs.alignment import CAVQuality, alignment_mean, alignment_sample, cav_auc
from hansfree.cavs.base import load_cavs, save_cavs

__all__ = [
    "CAV",
    "SVMCAV",
    "CAVQuality",
    "JointCAV",
    "LassoCAV",
    "LogisticCAV",
    "PairCAV",
    "RidgeCAV",
    "SignalCAV",
    "alignment_mean",
    "alignment_sample",
    "cav_auc",
    "class_direction",
    "join_cavs",
    "load_cavs",
    "save_cavs",
]
