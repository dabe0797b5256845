"""The paper's experiments, on its datasets or on the embedded suite; each is one class in one file."""

from hansfree.reproduce import ablations, alignment, class_specific, corrections, natural, overview, runtime
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
]
