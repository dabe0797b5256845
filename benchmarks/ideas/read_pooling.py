"""Is a direction better that is learned from what the head reads? Over several resamples, against maxima and means.

python -m benchmarks.ideas.read_pooling
python -m benchmarks.ideas.read_pooling --root FOLDER --biased-class MEL --weights FILE --size 112 --epochs 40

The layer is before its activation, and the CAV learns from maxima over the positions (the paper), from means, or from
what reaches the first trainable layer: means after the ReLU for ResNet-18, and for the demo's network the mean of the
cells that its max pooling leaves. RR-ClArC by the paper's recipe, the same 22 strengths, rule and clean budget for all.
"""

from __future__ import annotations

from functools import partial

import numpy as np

import hansfree as hf
from benchmarks.comparison import Resample
from benchmarks.ideas.shared import Candidate, iter_resamples, learn_direction, print_comparisons, read_arguments
from hansfree.activations import Activations, compute_features

POOLINGS = ("max", "mean", "read")


def read(resample: Resample, images: Activations) -> np.ndarray:
    """Return what the head reads of each channel, (n, channels)."""
    (values,) = compute_features(resample.cut, images).values
    return values.reshape(len(values), images.shape[0], -1).mean(2)


def along(direction: str, pooling: str, resample: Resample) -> hf.RRClArC:
    """Return the correction along a direction of pooled activations."""
    if pooling != "read":
        cav = learn_direction(resample, direction, pooling)
    elif direction == "signal":
        rows = resample.cav_rows
        cav = hf.SignalCAV().fit(read(resample, resample.train)[rows], np.asarray(resample.train.has_artifact)[rows])
    else:
        cav = hf.PairCAV(count=1).fit_pairs(read(resample, resample.pairs.clean), read(resample, resample.pairs.biased))
    return hf.RRClArC(cav, tuning=resample.tuning)


def main() -> None:
    """Compare the poolings."""
    args = read_arguments(__doc__, ("timestamp", "brightness", "lsb"))
    directions = ("signal", "pair-1")
    candidates = {f"{kind} {name}": Candidate(partial(along, kind, name)) for kind in directions for name in POOLINGS}
    rivals = {f"{kind} {name}": f"{kind} max" for kind in directions for name in POOLINGS[1:]}
    print_comparisons(args, __file__, partial(iter_resamples, args), candidates, rivals)


if __name__ == "__main__":
    main()
