"""What own classes subclass, what they take and return, and what they raise; `docs/extend.md` has an example of each.

from hansfree.extend import CAV, LatentCorrection, MethodInfo, UndefinedMetricError
"""

from hansfree.activations import FeatureSpec
from hansfree.callbacks import Callback, Stage
from hansfree.cavs import CAV
from hansfree.corrections import (
    CAVCorrection,
    Correction,
    DeepCorrection,
    LatentCorrection,
    MethodInfo,
    Need,
    NetworkTuning,
    TrainingImages,
)
from hansfree.corrections.deep.base import Objective
from hansfree.corrections.training import FineTuning, FunctionalHead, HeadBatch, Pretraining, pretrain
from hansfree.data import Artifact, BiasedData, Example, ImageDataset, ImageSource, insert_bias
from hansfree.errors import (
    AmbiguousLayerError,
    CacheError,
    DataError,
    DivergedError,
    HansfreeError,
    LayerNotFoundError,
    OptionError,
    RunError,
    SplitError,
    UndefinedMetricError,
    UnknownNameError,
)
from hansfree.metrics import Evidence, Metric, Score

__all__ = [
    "CAV",
    "AmbiguousLayerError",
    "Artifact",
    "BiasedData",
    "CAVCorrection",
    "CacheError",
    "Callback",
    "Correction",
    "DataError",
    "DeepCorrection",
    "DivergedError",
    "Evidence",
    "Example",
    "FeatureSpec",
    "FineTuning",
    "FunctionalHead",
    "HansfreeError",
    "HeadBatch",
    "ImageDataset",
    "ImageSource",
    "LatentCorrection",
    "LayerNotFoundError",
    "MethodInfo",
    "Metric",
    "Need",
    "NetworkTuning",
    "Objective",
    "OptionError",
    "Pretraining",
    "RunError",
    "Score",
    "SplitError",
    "Stage",
    "TrainingImages",
    "UndefinedMetricError",
    "UnknownNameError",
    "insert_bias",
    "pretrain",
]
