"""Load any classifier, adapt its output to logits, and recommend a layer to correct it at."""

from hansfree.models.adapters import (
    Output as Output,
    Preprocessing as Preprocessing,
    adapt as adapt,
    as_module as as_module,
    find_logits as find_logits,
    in_form_of as in_form_of,
    plain as plain,
    plain_state as plain_state,
    predict_logits as predict_logits,
    preprocessing_of as preprocessing_of,
    returns_logits as returns_logits,
)
from hansfree.models.layers import (
    Recommendation as Recommendation,
    feature_layers as feature_layers,
    recommend_layer as recommend_layer,
)
from hansfree.models.loading import Factory as Factory, load_model as load_model
from hansfree.models.weights import (
    PRETRAINED as PRETRAINED,
    check_finite as check_finite,
    check_weights as check_weights,
    fill_with_weights as fill_with_weights,
    read_weights as read_weights,
    write_weights as write_weights,
)
from hansfree.models.zoo import (
    ARCHITECTURES as ARCHITECTURES,
    PAPER_MODELS as PAPER_MODELS,
    Architecture as Architecture,
    DemoNet as DemoNet,
    architecture_named as architecture_named,
    build_model as build_model,
)
