"""The paper's experiments, on its datasets or on the embedded suite."""

from hansfree.reproduce import experiments, tournament
from hansfree.reproduce.runner import Finding, Presentation, Reproduction, reproduce

__all__ = ["Finding", "Presentation", "Reproduction", "experiments", "reproduce", "tournament"]
