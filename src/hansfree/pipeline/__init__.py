"""From a run file to results: checks, cached activations, tasks, executors."""

from hansfree.pipeline.auto_pairs import make_auto_pairs as make_auto_pairs
from hansfree.pipeline.checks import (
    PreparedRun as PreparedRun,
    adapt_run_model as adapt_run_model,
    assemble_run as assemble_run,
    estimate_time as estimate_time,
    first_logits as first_logits,
    load_run_model as load_run_model,
    model_facts as model_facts,
    prepare_run as prepare_run,
    transplants_file as transplants_file,
)
from hansfree.pipeline.concepts import insert_into as insert_into
from hansfree.pipeline.config import (
    RunConfig as RunConfig,
    is_deep as is_deep,
    read_run_file as read_run_file,
    validate_config as validate_config,
)
from hansfree.pipeline.diagnosis import (
    Depth as Depth,
    InsertionSimilarity as InsertionSimilarity,
    check_concepts as check_concepts,
    compare_insertion as compare_insertion,
    diagnose_direction as diagnose_direction,
    measure_depth as measure_depth,
)
from hansfree.pipeline.experiment import Experiment as Experiment
from hansfree.pipeline.identity import (
    check_unchanged as check_unchanged,
    keep_images as keep_images,
    run_config as run_config,
    unused_keys as unused_keys,
)
from hansfree.pipeline.layer_search import LayerChoice as LayerChoice, choose_layer as choose_layer
from hansfree.pipeline.outcome import (
    EXTREMES as EXTREMES,
    NOTABLE as NOTABLE,
    gather_results as gather_results,
    weights_file as weights_file,
    write_outcome as write_outcome,
)
from hansfree.pipeline.ray import ExecutorFactory as ExecutorFactory, WorkerSetup as WorkerSetup
from hansfree.pipeline.recommendation import advise as advise
from hansfree.pipeline.workspace import (
    Grid as Grid,
    MethodSpec as MethodSpec,
    Setting as Setting,
    Workspace as Workspace,
    keep_in_memory as keep_in_memory,
)
