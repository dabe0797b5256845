"""From a run file to results: checks, cached activations, tasks, executors."""

from hansfree.pipeline.checks import (
    PreparedRun,
    first_logits,
    load_run_model,
    model_facts,
    prepare_run,
    transplants_file,
)
from hansfree.pipeline.concepts import insert_into
from hansfree.pipeline.config import RunConfig, is_deep, read_run_file
from hansfree.pipeline.diagnosis import InsertionSimilarity, check_concepts, compare_insertion, diagnose_direction
from hansfree.pipeline.executors import ExecutorFactory, local_executor, weights_file
from hansfree.pipeline.experiment import Experiment
from hansfree.pipeline.identity import check_unchanged, keep_images, run_config, unused_keys
from hansfree.pipeline.layer_search import LayerChoice, choose_layer
from hansfree.pipeline.outcome import EXTREMES, NOTABLE, gather_results, write_outcome
from hansfree.pipeline.recommendation import advise, recommend
from hansfree.pipeline.workspace import (
    Grid,
    MethodSpec,
    Plan,
    Setting,
    Workspace,
    describe_joint,
    keep_in_memory,
    reads_pictures,
)

__all__ = [
    "EXTREMES",
    "NOTABLE",
    "ExecutorFactory",
    "Experiment",
    "Grid",
    "InsertionSimilarity",
    "LayerChoice",
    "MethodSpec",
    "Plan",
    "PreparedRun",
    "RunConfig",
    "Setting",
    "Workspace",
    "advise",
    "check_concepts",
    "check_unchanged",
    "choose_layer",
    "compare_insertion",
    "describe_joint",
    "diagnose_direction",
    "first_logits",
    "gather_results",
    "insert_into",
    "is_deep",
    "keep_images",
    "keep_in_memory",
    "load_run_model",
    "local_executor",
    "model_facts",
    "prepare_run",
    "read_run_file",
    "reads_pictures",
    "recommend",
    "run_config",
    "transplants_file",
    "unused_keys",
    "weights_file",
    "write_outcome",
]
