"""Training: heads on the cache, many strengths at once; and whole models, to be corrected."""

from hansfree.corrections.training.head_loop import (
    FineTuning,
    FunctionalHead,
    HeadBatch,
    Heads,
    Optimizer,
    SolverSupport,
    TrainedHead,
    Watch,
    balanced_weights,
    check_momentum,
    group_strengths,
    push,
    train_heads,
    warn_of_strengths,
)
from hansfree.corrections.training.model_loop import Checkpoint, Pretraining, pretrain, process_place, read_ahead
from hansfree.corrections.training.solver import (
    MAX_GRADIENT,
    Solve,
    check_float64,
    check_head_size,
    converged,
    minimise,
    solutions,
)
