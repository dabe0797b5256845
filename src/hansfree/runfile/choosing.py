"""The layer of a run file's model, chosen by its images."""

from __future__ import annotations

from hansfree.layer_choice import LayerChoice, choose_layer
from hansfree.progress import Progress, silent
from hansfree.runfile.opening import Opened


def choose_run_layer(opened: Opened, *, tries: int = 3, progress: Progress = silent) -> LayerChoice:
    """Choose a layer with the run file's recipe and budgets; nothing is written.

    Args:
        tries: At how many of the best layers the model is corrected.
    """
    setting = opened.setting
    return choose_layer(
        setting.model,
        setting.data,
        confirm=tries,
        tuning=setting.tuning,
        train=setting.train,
        budget=setting.rule.budget,
        class_budgets=setting.rule.class_budgets,
        seed=opened.run.seed,
        progress=progress,
    )
