"""Concept activation vectors: the directions in a layer's activations along which an artifact shows.

cav = SignalCAV().fit(activations, has_artifact)         # a scikit-learn classifier
cav.directions_                                          # (k, channels), orthonormal rows
CAV.named("ridge")                                       # -> RidgeCAV
"""

from hansfree.cavs.base import CAV, load_cavs, save_cavs

# isort: split
from hansfree.cavs.means import PairCAV, SignalCAV  # first in tables, as in the paper

# isort: split
from hansfree.cavs.base import fingerprint_tensors, read_tensors
from hansfree.cavs.captum import GivenCAV, from_captum, to_captum
from hansfree.cavs.joint import JointCAV, class_direction, join_cavs
from hansfree.cavs.quality import CAVQuality, alignment_mean, alignment_sample, cav_auc
from hansfree.cavs.regularised import SVMCAV, LassoCAV, LogisticCAV, RidgeCAV
