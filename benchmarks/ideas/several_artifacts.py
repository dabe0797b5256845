"""Two shortcuts in one model: corrected for the one, for the other, and for both at once. Over several resamples.

python -m benchmarks.ideas.several_artifacts
python -m benchmarks.ideas.several_artifacts --root FOLDER --biased-class MEL --other-class NV --weights FILE

The networks of the embedded suite have learned both; with --root half of the images of a second class get the second
artifact, and heads are trained on both. RR-ClArC by the paper's recipe along signal-CAVs. The strength of a single
correction is chosen by its own artifact; that of the joint one by the first, as in a run file, or by the mean of both.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

import hansfree as hf
from benchmarks.comparison import Resample, make_validator
from benchmarks.ideas.shared import (
    FLIPS,
    WITH_IT,
    Candidate,
    Judge,
    Selected,
    Tally,
    describe,
    iter_resamples,
    learn_direction,
    predict,
    read_arguments,
    select,
    train_head,
    write_settings,
)
from hansfree.activations import cut_at, join
from hansfree.corrections.selection import Validation
from hansfree.corrections.training import Heads

BY_FIRST, BY_BOTH = "both, by the first", "both, by both"


def paired_resamples(args: argparse.Namespace) -> Iterator[tuple[Resample, Resample]]:
    """Yield models with both shortcuts, once with the images of each artifact."""
    first, second = args.artifact
    others = argparse.Namespace(**{**vars(args), "biased_class": args.other_class})
    for one, other in zip(iter_resamples(args, first), iter_resamples(others, second)):
        if args.root is None:
            yield one, other
            continue
        rows = np.arange(len(one.train)) + len(one.train) * np.asarray(other.train.has_artifact)
        both = join(one.train, other.train).select(rows)  # no image has both: they are of different classes
        model = train_head(args, one, one.model, both)
        cut = cut_at(model, both, train="last")
        yield tuple(  # type: ignore[misc]
            replace(resample, model=model, cut=cut, train=replace(both, has_artifact=resample.train.has_artifact))
            for resample in (one, other)
        )


def judge_by_both(one: Resample, other: Resample) -> Judge:
    """Return what judges heads by the mean of the balanced accuracies with either artifact."""
    judges = make_validator(one), make_validator(other)

    def judge(heads: Heads) -> list[Validation]:
        return [
            replace(ours, biased=replace(ours.biased, value=(ours.biased.value + theirs.biased.value) / 2))
            for ours, theirs in zip(*(each(heads) for each in judges))
        ]

    return judge


def correct(one: Resample, other: Resample, names: tuple[str, str]) -> tuple[Selected, Selected]:
    """Correct for one artifact, for the other, and for both; the heads are of one model, and each has to face both."""
    cavs = {name: learn_direction(resample, "signal") for name, resample in zip(names, (one, other))}
    along = {**cavs, BY_FIRST: hf.join_cavs(cavs), BY_BOTH: hf.join_cavs(cavs)}

    def candidates(*wanted: str) -> dict[str, Candidate]:
        return {
            name: Candidate(lambda resample, cav=along[name]: hf.RRClArC(cav, tuning=resample.tuning))
            for name in wanted
        }

    found = [
        select(one, candidates(names[0], BY_FIRST)),
        select(other, candidates(names[1])),
        select(one, candidates(BY_BOTH), judge=judge_by_both(one, other)),
    ]
    heads = {name: state for each in found for name, state in each.heads.items()}
    strengths = {name: strength for each in found for name, strength in each.strengths.items()}
    return Selected(one, strengths, heads), Selected(other, strengths, heads)


def main() -> None:
    """Print what every correction does under each artifact."""
    further = {"--other-class": "label that the second artifact leaks into, with --root"}
    args = read_arguments(__doc__, ("timestamp", "lsb"), further=further)
    names = tuple(args.artifact)
    selected = [correct(*resamples, names) for resamples in paired_resamples(args)]  # type: ignore[arg-type]
    write_settings(args, __file__, " + ".join(names), [first for first, _ in selected])
    tallies = {name: Tally() for name in (BY_FIRST, BY_BOTH)}
    print(f"| | original model, it alone, the other alone, {BY_FIRST}, {BY_BOTH} | {BY_FIRST} | {BY_BOTH} |")
    print("|---|---|---|---|")
    for place, (name, other) in enumerate((names, names[::-1])):
        said, labels = predict(args, [each[place] for each in selected])
        for measure, words in ((WITH_IT, "balanced accuracy"), (FLIPS, "flips")):
            cells = [f"{words} with {name}", describe(said, labels, ("", name, other, *tallies), measure)]
            cells += [tally.compare(said, labels, joint, name, measure) for joint, tally in tallies.items()]
            print(f"| {' | '.join(cells)} |", flush=True)
    clean = describe(said, labels, ("", *names, *tallies), "balanced_accuracy_clean")
    print(f"without an artifact: original model, {', '.join((*names, *tallies))}: {clean}")
    for joint, tally in tallies.items():
        print(f"{joint} against the artifact's own correction, {tally}")


if __name__ == "__main__":
    main()
