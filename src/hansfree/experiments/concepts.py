"""What else a model may go by, beside the artifact that an experiment is about."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hansfree.datasets import ExampleSet


@dataclass(frozen=True, eq=False, kw_only=True)
class Concept:
    """Another artifact, or something benign, whose direction training images tell: marked, or put into them.

    These images do not carry the experiment's own artifact, or its direction would get into this one.
    """

    name: str
    rows: np.ndarray  # of the training images that tell it
    told_by: np.ndarray | ExampleSet  # a bit for each of them; or the same images with it put in, in the same order
