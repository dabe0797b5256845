"""How fast: ours against the paper's procedure, the physical floor, plain libraries, and growth; always as ratios."""

from hansfree.bench import races  # they join the family
from hansfree.bench.measures import Measure, Target
from hansfree.bench.plan import Machine, plan_stages, write_plan
from hansfree.bench.plot import draw_ratios
from hansfree.bench.race import Outcome, Race
from hansfree.bench.record import Record, read_measures
from hansfree.bench.running import run_bench
from hansfree.bench.sizes import TRIAL, Sizes

__all__ = [
    "TRIAL",
    "Machine",
    "Measure",
    "Outcome",
    "Race",
    "Record",
    "Sizes",
    "Target",
    "draw_ratios",
    "plan_stages",
    "races",
    "read_measures",
    "run_bench",
    "write_plan",
]
