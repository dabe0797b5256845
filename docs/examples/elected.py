"""Ask the kept scores of tournaments what a run of init's file would take: the better of two on validation images.

Usage::

    python docs/examples/elected.py results/table/redrawn/*/results.csv results/synthetic/tournament*/results.csv
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

from hansfree.selection import BalancedRule
from hansfree.tournament import BIASED, CANDIDATES, PAPER, REFERENCE

CLEAN, WITH_IT, FLIPS = "balanced_accuracy_clean", "balanced_accuracy_biased", "flip_rate"
Scores = dict[tuple[str, str, str], float]  # (entrant, part, measure) -> score of one draw


def read_draws(paths: list[Path]) -> dict[str, list[Scores]]:
    """Return the scores of every setting's draws."""
    draws: dict[tuple[str, str], Scores] = defaultdict(dict)
    for path in paths:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                place = (row["method"], row["split"], row["metric"])
                draws[row["experiment"], row["seed"]][place] = float(row["value"])
    settings: dict[str, list[Scores]] = defaultdict(list)
    for (name, _), scores in draws.items():
        settings[name].append(scores)
    return settings


def elect(scores: Scores) -> str:
    """Return who is best on validation images with the artifact, among those within the clean budget.

    Whether a head still answers every class is not in the scores.
    """
    least = scores[BIASED, "val", CLEAN] - BalancedRule().budget
    played = [name for name in CANDIDATES if (name, "val", CLEAN) in scores]
    admissible = [name for name in played if scores[name, "val", CLEAN] >= least]
    return max(admissible, key=lambda name: scores[name, "val", WITH_IT], default=BIASED)


def mean(draws: list[Scores], names: list[str], measure: str) -> str:
    """Return a test score's mean in per cent; an entrant without a model in a draw left the biased one as it was."""
    values = [s.get((name, "test", measure), s[BIASED, "test", measure]) for s, name in zip(draws, names)]
    return f"{100 * sum(values) / len(values):.1f}"


def main(paths: list[Path]) -> None:
    """Print a table: balanced accuracy with the artifact of all, then flips, and how often ours was taken."""
    ours, augmented = CANDIDATES
    names = (BIASED, REFERENCE, PAPER, ours, augmented)
    print("| setting | biased | clean-trained | the paper's | ours | augmented | elected | its flips | ours taken |")
    print("|---|---|---|---|---|---|---|---|---|")
    for setting, draws in read_draws(paths).items():
        elected = [elect(scores) for scores in draws]
        cells = [mean(draws, [name] * len(draws), WITH_IT) for name in names]
        cells += [mean(draws, elected, WITH_IT), mean(draws, elected, FLIPS)]
        print(f"| {setting} | {' | '.join(cells)} | {elected.count(ours)} of {len(draws)} |")


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
