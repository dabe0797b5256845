"""Is a penalty on the artifact's whole step better than on the derivative, where the head is deep? Over several draws.

python docs/examples/step_penalty.py
python docs/examples/step_penalty.py --root FOLDER --biased-class MEL --weights FILE --size 224 --epochs 40

Embedded: all that follows `features.7` is corrected, a convolution and the linear layer. With --root, ResNet-18 gets a
head of two linear layers with a ReLU between them. Signal-CAV, the paper's recipe, the same strengths and rule.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from comparing import Variant, draw_models, learn_direction, place, print_comparisons, read_arguments, train_head
from torch import nn

import hansfree as hf
from hansfree.activations import cut_again
from hansfree.tournament import Draw

LAYER, WIDTH = "features.7", 64
STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)


def along(kind: type[hf.RRClArC], draw: Draw) -> hf.RRClArC:
    """Return the penalty along the paper's direction."""
    return kind(learn_direction(draw, "signal"), tuning=draw.tuning)


def deep_draws(args: argparse.Namespace, artifact: str) -> Iterator[Draw]:
    """Yield draws whose head is deeper than one linear layer."""
    for draw in draw_models(args, artifact):
        if args.root is None:
            yield place(args, draw.model, LAYER, draw.data, number=draw.number, tuning=draw.tuning)
            continue
        model = copy.deepcopy(draw.model)
        with torch.random.fork_rng():
            torch.manual_seed(draw.number)
            model.fc = nn.Sequential(
                nn.Linear(model.fc.in_features, WIDTH), nn.ReLU(), nn.Linear(WIDTH, model.fc.out_features)
            )
        model = train_head(args, draw, model, draw.train)
        yield replace(draw, model=model, corrected="all", cut=cut_again(model, draw.train))


def main() -> None:
    """Compare the penalties."""
    args = read_arguments(__doc__, ("timestamp", "brightness", "lsb"))
    kinds = {"derivative": hf.RRClArC, "step": hf.RRClArCStep}
    variants = {name: Variant(partial(along, kind), strengths=STRENGTHS) for name, kind in kinds.items()}
    print_comparisons(args, __file__, partial(deep_draws, args), variants, {"step": "derivative"})


if __name__ == "__main__":
    main()
