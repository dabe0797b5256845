"""Speed as ratios: against the paper's procedure, one forward pass, plain libraries, and growth with the data."""

from benchmarks.speed.measures import Benchmark, Measure, Outcome, Record, Target, draw_ratios, read_measures
from benchmarks.speed.plan import Machine, plan_stages, write_plan
from benchmarks.speed.setup import TRIAL, Sizes
from benchmarks.speed.tasks import run_benchmarks

__all__ = [
    "TRIAL",
    "Benchmark",
    "Machine",
    "Measure",
    "Outcome",
    "Record",
    "Sizes",
    "Target",
    "draw_ratios",
    "plan_stages",
    "read_measures",
    "run_benchmarks",
    "write_plan",
]
