"""The races, one file each, in the order of the table."""

# ruff: noqa: I001 (the order of the table)

from hansfree.bench.races.path import PathRace
from hansfree.bench.races.floor import FloorRace
from hansfree.bench.races.step import StepRace
from hansfree.bench.races.rrr import RRRRace
from hansfree.bench.races.lrp import LRPRace
from hansfree.bench.races.cache import CacheRace
from hansfree.bench.races.growth import GrowthRace
from hansfree.bench.races.cav import CAVRace
from hansfree.bench.races.memory import MemoryRace

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
