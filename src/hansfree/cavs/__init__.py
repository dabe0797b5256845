"""Concept activation vectors: the directions in a layer's activations along which an artifact shows.

cav = SignalCAV().fit(activations, has_artifact)         # a scikit-learn classifier
cav.directions_                                          # (k, channels), orthonormal rows
CAV.named("ridge")                                       # -> RidgeCAV
"""

from hansfree.cavs.base import CAV as CAV, load_cavs as load_cavs, save_cavs as save_cavs

# isort: split
from hansfree.cavs.means import PairCAV as PairCAV, SignalCAV as SignalCAV  # first in tables, as in the paper

# isort: split
from hansfree.cavs.base import fingerprint_tensors as fingerprint_tensors, read_tensors as read_tensors
from hansfree.cavs.captum import GivenCAV as GivenCAV, from_captum as from_captum, to_captum as to_captum
from hansfree.cavs.joint import JointCAV as JointCAV, class_direction as class_direction, join_cavs as join_cavs
from hansfree.cavs.quality import (
    CAVQuality as CAVQuality,
    alignment_mean as alignment_mean,
    alignment_sample as alignment_sample,
    cav_auc as cav_auc,
)
from hansfree.cavs.regularised import (
    SVMCAV as SVMCAV,
    LassoCAV as LassoCAV,
    LogisticCAV as LogisticCAV,
    RidgeCAV as RidgeCAV,
)
