"""How fast: ours against the paper's procedure, the physical floor, plain libraries, and growth; always as ratios."""

from benchmarks.speed import races  # they join the family
from benchmarks.speed.measures import Measure, Target
from benchmarks.speed.plan import Machine, plan_stages, write_plan
from benchmarks.speed.plot import draw_ratios
from benchmarks.speed.race import Outcome, Race
from benchmarks.speed.record import Record, read_measures
from benchmarks.speed.running import run_bench
from benchmarks.speed.sizes import TRIAL, Sizes

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
