"""Does the knee, the weakest strength that is nearly the best, correct as well as the best? Over several resamples.

python -m benchmarks.ideas.knee_rule
python -m benchmarks.ideas.knee_rule --root FOLDER --biased-class MEL --weights FILE --size 112 --epochs 40

RR-ClArC by the paper's recipe, along the signal-CAV and along the mean change of pairs; both rules have the same 22
strengths and the same clean budget.
"""

from __future__ import annotations

from functools import partial

import hansfree as hf
from benchmarks.comparison import Resample
from benchmarks.ideas.shared import Candidate, iter_resamples, learn_direction, print_comparisons, read_arguments
from hansfree.corrections.selection import BalancedRule, OneStandardErrorRule


def along(direction: str, resample: Resample) -> hf.RRClArC:
    """Return the correction along a direction."""
    return hf.RRClArC(learn_direction(resample, direction), tuning=resample.tuning)


def main() -> None:
    """Compare the rules."""
    args = read_arguments(__doc__, ("timestamp", "brightness", "lsb"))
    rules = {"best": BalancedRule(), "knee": OneStandardErrorRule()}
    ways = {direction: partial(along, direction) for direction in ("signal", "pair-1")}
    candidates = {f"{way} {name}": Candidate(make, rule) for way, make in ways.items() for name, rule in rules.items()}
    rivals = {f"{way} knee": f"{way} best" for way in ways}
    print_comparisons(args, __file__, partial(iter_resamples, args), candidates, rivals)


if __name__ == "__main__":
    main()
