"""Does the knee, the weakest strength that is nearly the best, correct as well as the best? Over several draws.

python docs/examples/knee_rule.py
python docs/examples/knee_rule.py --root FOLDER --biased-class MEL --weights FILE --size 112 --epochs 40

RR-ClArC by the paper's recipe, along the signal-CAV and along the mean change of pairs; both rules have the same 22
strengths and the same clean budget.
"""

from __future__ import annotations

from functools import partial

from comparing import Candidate, draw_models, learn_direction, print_comparisons, read_arguments

import hansfree as hf
from hansfree.selection import BalancedRule, KneeRule
from hansfree.tournament import Draw


def along(direction: str, draw: Draw) -> hf.RRClArC:
    """Return the correction along a direction."""
    return hf.RRClArC(learn_direction(draw, direction), tuning=draw.tuning)


def main() -> None:
    """Compare the rules."""
    args = read_arguments(__doc__, ("timestamp", "brightness", "lsb"))
    rules = {"best": BalancedRule(), "knee": KneeRule()}
    ways = {direction: partial(along, direction) for direction in ("signal", "pair-1")}
    candidates = {f"{way} {name}": Candidate(make, rule) for way, make in ways.items() for name, rule in rules.items()}
    rivals = {f"{way} knee": f"{way} best" for way in ways}
    print_comparisons(args, __file__, partial(draw_models, args), candidates, rivals)


if __name__ == "__main__":
    main()
