"""Training: heads on the cache, many strengths at once; and whole models, to be corrected."""

from hansfree.corrections.training.head_loop import (
    FineTuning as FineTuning,
    FunctionalHead as FunctionalHead,
    HeadBatch as HeadBatch,
    Heads as Heads,
    Optimizer as Optimizer,
    SolverSupport as SolverSupport,
    TrainedHead as TrainedHead,
    Watch as Watch,
    balanced_weights as balanced_weights,
    check_momentum as check_momentum,
    check_training as check_training,
    group_strengths as group_strengths,
    push as push,
    train_heads as train_heads,
)
from hansfree.corrections.training.model_loop import (
    Checkpoint as Checkpoint,
    Pretraining as Pretraining,
    pretrain as pretrain,
    process_place as process_place,
    read_ahead as read_ahead,
)
from hansfree.corrections.training.solver import (
    MAX_GRADIENT as MAX_GRADIENT,
    Solve as Solve,
    check_float64 as check_float64,
    check_head_size as check_head_size,
    converged as converged,
    minimise as minimise,
    solutions as solutions,
)
