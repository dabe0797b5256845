"""The paper's experiments, on its datasets or on the embedded suite; each is one class in one file."""

# ruff: noqa: I001 (imported in the paper's order, which is the order of lists)

from hansfree.reproduce import overview, alignment, corrections, class_specific, natural, ablations, runtime, tournament
from hansfree.reproduce.base import Finding, Presentation, Reproduction
from hansfree.reproduce.running import reproduce

__all__ = [
    "Finding",
    "Presentation",
    "Reproduction",
    "ablations",
    "alignment",
    "class_specific",
    "corrections",
    "natural",
    "overview",
    "reproduce",
    "runtime",
    "tournament",
]
