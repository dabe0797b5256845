"""What of a method can be done apart from the rest, by whoever is free, as stages that the run then finds."""

from __future__ import annotations

from hansfree.corrections import method_named
from hansfree.experiments.experiment import Experiment
from hansfree.experiments.parts import Part
from hansfree.results import ORIGINAL
from hansfree.training import group_strengths

_FEWEST = 3  # groups that are spread: the chosen one is trained once more for its weights, so of two nothing is won


def missing_rounds(experiment: Experiment, name: str) -> list[list[Part]]:
    """Return a method's missing stages in rounds: those of a round wait for the rounds before, not for each other."""
    has = experiment.run.has
    rounds = [[Part(name)]]
    if name != ORIGINAL:
        apart = [Part(name, "strengths", number) for number in range(0 if has(name) else _groups(experiment, name))]
        seeds = [Part(name, "seed", seed) for seed in experiment.further_seeds(experiment.plain(name))]
        rounds = [apart, [Part(name)], seeds]
    missing = ([part for part in parts if not has(part.stage)] for parts in rounds)
    return [parts for parts in missing if parts]


def do_part(experiment: Experiment, part: Part) -> None:
    """Do one stage, unless it is done."""
    if part.method == ORIGINAL:
        experiment.original_rows()
        return
    treatment = experiment.plain(part.method)
    if part.kind == "strengths":
        experiment.run.stage(part.stage, lambda: experiment.along(treatment).try_group(part.number))
    elif part.kind == "seed":
        experiment.repeated_rows(treatment, part.number)
    else:
        experiment.selection(treatment)


def _groups(experiment: Experiment, name: str) -> int:
    """Return into how many groups a method's strengths are spread; 0 where they stay together."""
    # Asked of the class: to make a member may take masks, and those long.
    strengths = experiment.strengths(experiment.plain(name), method_named(name))
    groups = group_strengths(experiment.material.cut, strengths, experiment.setting.tuning)
    return len(groups) if len(groups) >= _FEWEST else 0
