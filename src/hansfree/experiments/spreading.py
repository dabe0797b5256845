"""What of a method can be done apart from the rest, by whoever is free, as stages that the run then finds."""

from __future__ import annotations

from hansfree.corrections import method_named
from hansfree.corrections.training import group_strengths
from hansfree.experiments.experiment import Experiment, Stage
from hansfree.results import ORIGINAL

_FEWEST = 3  # groups that are spread: the chosen one is trained once more for its weights, so of two nothing is won


def missing_rounds(experiment: Experiment, name: str) -> list[list[Stage]]:
    """Return a method's missing stages in rounds: those of a round wait for the rounds before, not for each other."""
    has = experiment.run.has
    rounds = [[Stage(name)]]
    if name != ORIGINAL:
        apart = [Stage(name, "strengths", number) for number in range(0 if has(name) else _groups(experiment, name))]
        seeds = [Stage(name, "seed", seed) for seed in experiment.further_seeds(experiment.plain(name))]
        rounds = [apart, [Stage(name)], seeds]
    missing = ([stage for stage in stages if not has(stage.name)] for stages in rounds)
    return [stages for stages in missing if stages]


def do_stage(experiment: Experiment, stage: Stage) -> None:
    """Do one stage, unless it is done."""
    if stage.method == ORIGINAL:
        experiment.original_rows()
        return
    treatment = experiment.plain(stage.method)
    if stage.kind == "strengths":
        experiment.run.stage(stage.name, lambda: experiment.along(treatment).try_group(stage.number))
    elif stage.kind == "seed":
        experiment.repeated_rows(treatment, stage.number)
    else:
        experiment.selection(treatment)


def _groups(experiment: Experiment, name: str) -> int:
    """Return into how many groups a method's strengths are spread; 0 where they stay together."""
    # Asked of the class: to make a member may take masks, and those long.
    strengths = experiment.strengths(experiment.plain(name), method_named(name))
    groups = group_strengths(experiment.material.cut, strengths, experiment.setting.tuning)
    return len(groups) if len(groups) >= _FEWEST else 0
