"""The paper's recipes (App. A.3): what a dataset and an architecture together say about training and correction."""

from __future__ import annotations

from hansfree.errors import OptionError
from hansfree.models import architecture_named
from hansfree.studies.study import Study
from hansfree.training.pretraining import Pretraining
from hansfree.training.tuning import FineTuning

_CORRECTION_RATE = 1e-4


def recipe_for(
    study: Study | type[Study],
    model: str,
    *,
    fresh: bool = False,
    epochs: int | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> Pretraining:
    """Return how a model is trained on a dataset: optimiser and rate by architecture, epochs and milestones by dataset.

    Args:
        fresh: the model starts from random weights, where the paper's start from pretrained ones: Adam along a cosine,
            if the dataset has a rate for that.
        epochs: None is the dataset's number; the milestones stay where they are.
    """
    known, recipe = architecture_named(model), study.recipe
    if epochs is None and model not in recipe.epochs:
        others = f" Known: {', '.join(recipe.epochs)}." if recipe.epochs else ""
        raise OptionError(f"{study.title} has no recipe for {model!r}.{others} Give the number of epochs.")
    from_scratch = fresh and model in recipe.fresh_rates
    return Pretraining(
        optimizer="adam" if from_scratch else known.optimizer,
        learning_rate=recipe.fresh_rates[model] if from_scratch else known.learning_rate,
        milestones=None if from_scratch else recipe.milestones,
        epochs=recipe.epochs[model] if epochs is None else epochs,
        batch_size=recipe.batch_size,
        seed=seed,
        device=device,
    )


def tuning_for(
    study: Study | type[Study], model: str, *, epochs: int = 10, seed: int = 0, device: str = "cpu"
) -> FineTuning:
    """Return how a model is corrected: the optimiser of its training at 1e-4, or at the dataset's own rate."""
    return FineTuning(
        optimizer=architecture_named(model).optimizer,
        learning_rate=study.recipe.correction_rates.get(model, _CORRECTION_RATE),
        epochs=epochs,
        seed=seed,
        device=device,
    )
