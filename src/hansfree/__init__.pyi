# One call.
from .api import unlearn as unlearn
from .result import Result as Result, Scores as Scores, load as load

# Images and artifacts.
from .data.examples import Example as Example, Normalize as Normalize
from .data.insertion import WithArtifact as WithArtifact
from .data.lesions import SyntheticLesions as SyntheticLesions
from .data.user_images import UserImages as UserImages
from .data.artifacts import (
    Artifact as Artifact,
    Brightness as Brightness,
    LSB as LSB,
    Patch as Patch,
    Plaster as Plaster,
    Timestamp as Timestamp,
)

# Models, layers, activations.
from .models import build_model as build_model, load_model as load_model, recommend_layer as recommend_layer
from .models.surgery import list_layers as list_layers
from .pipeline.layer_search import choose_layer as choose_layer
from .activations import Activations as Activations, collect_activations as collect_activations

# Directions.
from .cavs import (
    CAV as CAV,
    LassoCAV as LassoCAV,
    LogisticCAV as LogisticCAV,
    PairCAV as PairCAV,
    RidgeCAV as RidgeCAV,
    SVMCAV as SVMCAV,
    SignalCAV as SignalCAV,
    join_cavs as join_cavs,
)
from .cavs.diagnostics import diagnose_cav as diagnose_cav

# Corrections; `hansfree.corrections` has more.
from .corrections import (
    AClArC as AClArC,
    Correction as Correction,
    Eraser as Eraser,
    Match as Match,
    PClArC as PClArC,
    RRClArC as RRClArC,
    RRR as RRR,
    Transplant as Transplant,
    Vanilla as Vanilla,
    erase as erase,
)
from .corrections.training import FineTuning as FineTuning

# Evidence, delivery, errors.
from .evaluation.evaluate import evaluate as evaluate
from .evaluation.heatmaps import compute_heatmaps as compute_heatmaps
from .export import export_model as export_model, load_corrected as load_corrected
from .export.monitor import Monitor as Monitor, MonitorClassifier as MonitorClassifier
from .errors import HansfreeError as HansfreeError

# The rest by package, also without an import of its own: `hf.metrics.Metric`.
from . import (
    activations as activations,
    callbacks as callbacks,
    cavs as cavs,
    corrections as corrections,
    data as data,
    errors as errors,
    evaluation as evaluation,
    export as export,
    extend as extend,
    metrics as metrics,
    models as models,
    pipeline as pipeline,
    report as report,
)
