"""From a biased model to a table of proof: cache, CAVs, corrections, evaluation, stage by stage in a run folder."""

from hansfree.experiments.experiment import Experiment
from hansfree.experiments.workspace import Setting, Treatment

__all__ = ["Experiment", "Setting", "Treatment"]
