"""Is a penalty on the whole step better than on the derivative for a deep head? Over several resamples.

python -m benchmarks.ideas.step_penalty
python -m benchmarks.ideas.step_penalty --root FOLDER --biased-class MEL --weights FILE --size 112 --epochs 40

The linear head of every model is replaced by two linear layers with a ReLU between them, trained on the
biased images. Both penalties correct it along the signal-CAV by the paper's recipe, with the same strengths and rule.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import nn

import hansfree as hf
from benchmarks.comparison import Resample
from benchmarks.ideas.shared import (
    Candidate,
    iter_resamples,
    learn_direction,
    print_comparisons,
    read_arguments,
    train_head,
)
from hansfree.activations import cut_at
from hansfree.models import architecture_named

WIDTH = 64
STRENGTHS = tuple(10.0**power for power in range(-3, 5))


def along(kind: type[hf.RRClArC], resample: Resample) -> hf.RRClArC:
    """Return the penalty along the paper's direction."""
    return kind(learn_direction(resample, "signal"), tuning=resample.tuning)


def deep_head_resamples(args: argparse.Namespace, artifact: str) -> Iterator[Resample]:
    """Yield resamples whose head is deeper than one linear layer."""
    place = architecture_named(args.model).last
    for resample in iter_resamples(args, artifact):
        model = copy.deepcopy(resample.model)
        linear = model.get_submodule(place)
        with torch.random.fork_rng():
            torch.manual_seed(resample.number)
            layers = nn.Linear(linear.in_features, WIDTH), nn.ReLU(), nn.Linear(WIDTH, linear.out_features)
        setattr(model, place, nn.Sequential(*layers))
        model = train_head(args, resample, model, resample.train)
        yield replace(resample, model=model, corrected="all", cut=cut_at(model, resample.train))


def main() -> None:
    """Compare the penalties."""
    args = read_arguments(__doc__, ("timestamp", "brightness", "lsb"))
    kinds = {"derivative": hf.RRClArC, "step": hf.corrections.RRClArCStep}
    candidates = {name: Candidate(partial(along, kind), strengths=STRENGTHS) for name, kind in kinds.items()}
    print_comparisons(args, __file__, partial(deep_head_resamples, args), candidates, {"step": "derivative"})


if __name__ == "__main__":
    main()
