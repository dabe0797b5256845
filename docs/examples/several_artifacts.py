"""Two shortcuts in one model: corrected for the one, for the other, and for both at once. Over several draws.

python docs/examples/several_artifacts.py
python docs/examples/several_artifacts.py --root FOLDER --biased-class MEL --other-class NV --weights FILE

The networks of the embedded suite have learned both; with --root half of the images of a second class get the second
artifact, and heads are trained on both. RR-ClArC by the paper's recipe along signal-CAVs. The strength of a single
correction is chosen by its own artifact, that of the joint one by the first, as in a run file.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from comparing import (
    FLIPS,
    WITH_IT,
    Settled,
    Tally,
    Variant,
    ask,
    describe,
    draw_models,
    learn_direction,
    read_arguments,
    settle,
    train_head,
    write_settings,
)

import hansfree as hf
from hansfree.activations import cut_again, join, pick
from hansfree.tournament import Draw


def two_draws(args: argparse.Namespace) -> Iterator[tuple[Draw, Draw]]:
    """Yield models with both shortcuts, once with the images of each artifact."""
    first, second = args.artifact
    others = argparse.Namespace(**{**vars(args), "biased_class": args.other_class})
    for one, other in zip(draw_models(args, first), draw_models(others, second)):
        if args.root is None:
            yield one, other
            continue
        rows = np.arange(len(one.train)) + len(one.train) * np.asarray(other.train.has_artifact)
        both = pick(join(one.train, other.train), rows)  # no image has both: they are of different classes
        model = train_head(args, one, one.model, both)
        cut = cut_again(model, both, train="last")
        yield tuple(  # type: ignore[misc]
            replace(draw, model=model, cut=cut, train=replace(both, has_artifact=draw.train.has_artifact))
            for draw in (one, other)
        )


def correct(one: Draw, other: Draw, names: tuple[str, str]) -> tuple[Settled, Settled]:
    """Correct for one artifact, for the other, and for both; the heads are of one model, and each has to face both."""
    cavs = {name: learn_direction(draw, "signal") for name, draw in zip(names, (one, other))}
    along = {**cavs, "both": hf.join_cavs(cavs)}

    def variants(*wanted: str) -> dict[str, Variant]:
        return {name: Variant(lambda draw, cav=along[name]: hf.RRClArC(cav, tuning=draw.tuning)) for name in wanted}

    first, second = settle(one, variants(names[0], "both")), settle(other, variants(names[1]))
    heads, strengths = {**first.heads, **second.heads}, {**first.strengths, **second.strengths}
    return Settled(one, strengths, heads), Settled(other, strengths, heads)


def main() -> None:
    """Print what every correction does under each artifact."""
    further = {"--other-class": "label that the second artifact leaks into, with --root"}
    args = read_arguments(__doc__, ("timestamp", "lsb"), further=further)
    names = tuple(args.artifact)
    settled = [correct(*draws, names) for draws in two_draws(args)]  # type: ignore[arg-type]
    write_settings(args, __file__, " + ".join(names), [first for first, _ in settled])
    tallies = {"own": Tally(), "other": Tally()}
    print("| | as it came, for it alone, for the other, for both | both minus it alone | both minus the other |")
    print("|---|---|---|---|")
    for place, (name, other) in enumerate((names, names[::-1])):
        said, labels = ask(args, [each[place] for each in settled])
        for measure, words in ((WITH_IT, "balanced accuracy"), (FLIPS, "flips")):
            cells = [f"{words} with {name}", describe(said, labels, ("", name, other, "both"), measure)]
            cells += [tallies["own"].compare(said, labels, "both", name, measure)]
            cells += [tallies["other"].compare(said, labels, "both", other, measure)]
            print(f"| {' | '.join(cells)} |", flush=True)
    clean = describe(said, labels, ("", *names, "both"), "balanced_accuracy_clean")
    print(f"balanced accuracy without an artifact: as it came, {', '.join(names)}, both: {clean}")
    print(f"both against the artifact's own correction, {tallies['own']}")
    print(f"both against the other's correction, {tallies['other']}")


if __name__ == "__main__":
    main()
