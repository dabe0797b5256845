"""Load any classifier, adapt its output to logits, and recommend a layer to correct it at."""

from hansfree.models.adapters import (
    Output,
    Preprocessing,
    adapt,
    as_module,
    find_logits,
    in_form_of,
    plain,
    plain_state,
    predict_logits,
    preprocessing_of,
    returns_logits,
)
from hansfree.models.layers import Recommendation, feature_layers, recommend_layer
from hansfree.models.loading import Factory, load_model
from hansfree.models.weights import (
    PRETRAINED,
    check_finite,
    check_weights,
    fill_with_weights,
    read_weights,
    write_weights,
)
from hansfree.models.zoo import (
    ARCHITECTURES,
    PAPER_MODELS,
    Architecture,
    DemoNet,
    architecture_named,
    build_model,
    check_start,
)
