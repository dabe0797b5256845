"""How fast: our path against one plain forward pass and against the paper's own procedure, always as ratios."""

from hansfree.bench.race import Bench
from hansfree.bench.ratios import Ratio, write_ratios

__all__ = ["Bench", "Ratio", "write_ratios"]
