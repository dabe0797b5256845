"""The races, one file each, in the order of the table."""

# ruff: noqa: I001 (the order of the table)

from benchmarks.speed.races.path import PathRace
from benchmarks.speed.races.floor import FloorRace
from benchmarks.speed.races.step import StepRace
from benchmarks.speed.races.rrr import RRRRace
from benchmarks.speed.races.lrp import LRPRace
from benchmarks.speed.races.cache import CacheRace
from benchmarks.speed.races.growth import GrowthRace
from benchmarks.speed.races.cav import CAVRace
from benchmarks.speed.races.memory import MemoryRace

__all__ = [
    "CAVRace",
    "CacheRace",
    "FloorRace",
    "GrowthRace",
    "LRPRace",
    "MemoryRace",
    "PathRace",
    "RRRRace",
    "StepRace",
]
