"""Models: ours and the paper's by name, anybody's by source; adapted to the engine, with a layer to correct them at."""

from hansfree.models.adapters import (
    Output,
    Preprocessing,
    adapt,
    find_logits,
    plain,
    plain_state,
    preprocessing_of,
    returns_logits,
)
from hansfree.models.loading import load_model
from hansfree.models.recommendation import Recommendation, feature_layers, recommend_layer
from hansfree.models.zoo import (
    ARCHITECTURES,
    PAPER_MODELS,
    Architecture,
    DemoNet,
    architecture_named,
    build_model,
    check_start,
    predict_logits,
)

__all__ = [
    "ARCHITECTURES",
    "PAPER_MODELS",
    "Architecture",
    "DemoNet",
    "Output",
    "Preprocessing",
    "Recommendation",
    "adapt",
    "architecture_named",
    "build_model",
    "check_start",
    "feature_layers",
    "find_logits",
    "load_model",
    "plain",
    "plain_state",
    "predict_logits",
    "preprocessing_of",
    "recommend_layer",
    "returns_logits",
]
