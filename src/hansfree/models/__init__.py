"""Models: ours and the paper's by name, anybody's by source; adapted to the engine, with a layer to correct them at."""

from hansfree.models.adapters import Output, adapt, find_logits, plain, plain_state, returns_logits
from hansfree.models.architectures import (
    ARCHITECTURES,
    PAPER_MODELS,
    Architecture,
    DemoNet,
    architecture_named,
    build_model,
    check_start,
    predict_logits,
)
from hansfree.models.preprocessing import Preprocessing, preprocessing_of
from hansfree.models.recommendation import Recommendation, feature_layers, recommend_layer
from hansfree.models.sources import load_model

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
