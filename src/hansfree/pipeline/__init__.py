"""From a run file to results: checks, cached activations, tasks, executors."""

from hansfree.pipeline.auto_pairs import make_auto_pairs
from hansfree.pipeline.checks import (
    PreparedRun,
    adapt_run_model,
    assemble_run,
    estimate_time,
    first_logits,
    load_run_model,
    model_facts,
    prepare_run,
    transplants_file,
)
from hansfree.pipeline.concepts import insert_into
from hansfree.pipeline.config import RunConfig, is_deep, read_run_file, validate_config
from hansfree.pipeline.diagnosis import (
    Depth,
    InsertionSimilarity,
    check_concepts,
    compare_insertion,
    diagnose_direction,
    measure_depth,
)
from hansfree.pipeline.experiment import Experiment
from hansfree.pipeline.identity import check_unchanged, keep_images, run_config, unused_keys
from hansfree.pipeline.layer_search import LayerChoice, choose_layer
from hansfree.pipeline.outcome import EXTREMES, NOTABLE, gather_results, weights_file, write_outcome
from hansfree.pipeline.ray import ExecutorFactory
from hansfree.pipeline.recommendation import advise, recommend
from hansfree.pipeline.workspace import (
    Grid,
    MethodSpec,
    Setting,
    Workspace,
    keep_in_memory,
)
