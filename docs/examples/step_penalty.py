"""Is a penalty on the artifact's whole step better than on the derivative, where the head is deep? Over several draws.

python docs/examples/step_penalty.py
python docs/examples/step_penalty.py --root FOLDER --biased-class MEL --weights FILE --size 112 --epochs 40

The linear head of every draw's model is replaced by two linear layers with a ReLU between them, trained on the poisoned
images. Both penalties correct it along the signal-CAV by the paper's recipe, with the same strengths and rule.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from comparing import Candidate, draw_models, learn_direction, print_comparisons, read_arguments, train_head
from torch import nn

import hansfree as hf
from hansfree.activations import cut_again
from hansfree.models import architecture_named
from hansfree.tournament import Draw

WIDTH = 64
STRENGTHS = tuple(10.0**power for power in range(-3, 5))


def along(kind: type[hf.RRClArC], draw: Draw) -> hf.RRClArC:
    """Return the penalty along the paper's direction."""
    return kind(learn_direction(draw, "signal"), tuning=draw.tuning)


def deep_draws(args: argparse.Namespace, artifact: str) -> Iterator[Draw]:
    """Yield draws whose head is deeper than one linear layer."""
    place = architecture_named(args.model).last
    for draw in draw_models(args, artifact):
        model = copy.deepcopy(draw.model)
        linear = model.get_submodule(place)
        with torch.random.fork_rng():
            torch.manual_seed(draw.number)
            layers = nn.Linear(linear.in_features, WIDTH), nn.ReLU(), nn.Linear(WIDTH, linear.out_features)
        setattr(model, place, nn.Sequential(*layers))
        model = train_head(args, draw, model, draw.train)
        yield replace(draw, model=model, corrected="all", cut=cut_again(model, draw.train))


def main() -> None:
    """Compare the penalties."""
    args = read_arguments(__doc__, ("timestamp", "brightness", "lsb"))
    kinds = {"derivative": hf.RRClArC, "step": hf.RRClArCStep}
    candidates = {name: Candidate(partial(along, kind), strengths=STRENGTHS) for name, kind in kinds.items()}
    print_comparisons(args, __file__, partial(deep_draws, args), candidates, {"step": "derivative"})


if __name__ == "__main__":
    main()
