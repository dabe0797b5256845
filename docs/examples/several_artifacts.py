"""Two shortcuts in one model: corrected for the one, for the other, and for both at once. Over several draws.

python docs/examples/several_artifacts.py
python docs/examples/several_artifacts.py --root FOLDER --biased-class MEL --other-class NV --weights FILE

The networks of the embedded suite have learned both; with --root half of the images of a second class get the second
artifact, and heads are trained on both. RR-ClArC by the paper's recipe along signal-CAVs. The strength of a single
correction is chosen by its own artifact; that of the joint one by the first, as in a run file, or by the mean of both.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from comparing import (
    FLIPS,
    WITH_IT,
    Candidate,
    Judge,
    Settled,
    Tally,
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
from hansfree.corrections.training import Heads
from hansfree.selection import Validation
from hansfree.tournament import Draw, make_validator

BY_FIRST, BY_BOTH = "both, by the first", "both, by both"


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


def judge_by_both(one: Draw, other: Draw) -> Judge:
    """Return what judges heads by the mean of the balanced accuracies with either artifact."""
    judges = make_validator(one), make_validator(other)

    def judge(heads: Heads) -> list[Validation]:
        return [
            replace(ours, biased=replace(ours.biased, value=(ours.biased.value + theirs.biased.value) / 2))
            for ours, theirs in zip(*(each(heads) for each in judges))
        ]

    return judge


def correct(one: Draw, other: Draw, names: tuple[str, str]) -> tuple[Settled, Settled]:
    """Correct for one artifact, for the other, and for both; the heads are of one model, and each has to face both."""
    cavs = {name: learn_direction(draw, "signal") for name, draw in zip(names, (one, other))}
    along = {**cavs, BY_FIRST: hf.join_cavs(cavs), BY_BOTH: hf.join_cavs(cavs)}

    def candidates(*wanted: str) -> dict[str, Candidate]:
        return {name: Candidate(lambda draw, cav=along[name]: hf.RRClArC(cav, tuning=draw.tuning)) for name in wanted}

    found = [
        settle(one, candidates(names[0], BY_FIRST)),
        settle(other, candidates(names[1])),
        settle(one, candidates(BY_BOTH), judge=judge_by_both(one, other)),
    ]
    heads = {name: state for each in found for name, state in each.heads.items()}
    strengths = {name: strength for each in found for name, strength in each.strengths.items()}
    return Settled(one, strengths, heads), Settled(other, strengths, heads)


def main() -> None:
    """Print what every correction does under each artifact."""
    further = {"--other-class": "label that the second artifact leaks into, with --root"}
    args = read_arguments(__doc__, ("timestamp", "lsb"), further=further)
    names = tuple(args.artifact)
    settled = [correct(*draws, names) for draws in two_draws(args)]  # type: ignore[arg-type]
    write_settings(args, __file__, " + ".join(names), [first for first, _ in settled])
    tallies = {name: Tally() for name in (BY_FIRST, BY_BOTH)}
    print(f"| | as it came, it alone, the other alone, {BY_FIRST}, {BY_BOTH} | {BY_FIRST} | {BY_BOTH} |")
    print("|---|---|---|---|")
    for place, (name, other) in enumerate((names, names[::-1])):
        said, labels = ask(args, [each[place] for each in settled])
        for measure, words in ((WITH_IT, "balanced accuracy"), (FLIPS, "flips")):
            cells = [f"{words} with {name}", describe(said, labels, ("", name, other, *tallies), measure)]
            cells += [tally.compare(said, labels, joint, name, measure) for joint, tally in tallies.items()]
            print(f"| {' | '.join(cells)} |", flush=True)
    clean = describe(said, labels, ("", *names, *tallies), "balanced_accuracy_clean")
    print(f"without an artifact: as it came, {', '.join((*names, *tallies))}: {clean}")
    for joint, tally in tallies.items():
        print(f"{joint} against the artifact's own correction, {tally}")


if __name__ == "__main__":
    main()
