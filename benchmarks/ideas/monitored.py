"""How many images with the artifact does a monitor find, at which rate of false alarms? Over several resamples.

python -m benchmarks.ideas.monitored
python -m benchmarks.ideas.monitored --root FOLDER --biased-class MEL --weights FILE --size 112 --epochs 40

Thresholds are set on clean validation images for 1 % of false alarms, and counted on test images. Nothing is chosen, so
there are no settings to write down. Directions: the signal-CAV, and the mean change of pairs.
"""

from __future__ import annotations

import numpy as np

import hansfree as hf
from benchmarks.comparison import Answers, Comparison, Resample, compare
from benchmarks.ideas.shared import FLIPS, iter_resamples, learn_direction, read_arguments, with_test

RATE = 0.01


def flags(resample: Resample, direction: str) -> dict[str, np.ndarray]:
    """Return which test images a monitor flags, without and with the artifact."""
    test = resample.test
    sets = {"clean": resample.val.clean, "test_clean": test.clean, "test_biased": test.biased}
    monitor = hf.Monitor.fit(resample.model, learn_direction(resample, direction), **sets, false_fire_rate=RATE)
    seen = {"false": test.clean, "found": test.biased}
    return {name: monitor.cav.decision_function(images.pooled) > monitor.threshold for name, images in seen.items()}


def compare_shares(flagged: list[np.ndarray], others: list[np.ndarray]) -> Comparison:
    """Return the share of flagged images minus that of others, with the interval over images and resamples."""
    nothing = np.zeros(np.shape(flagged), dtype=int)
    ours, theirs = (Answers(nothing, np.stack(each).astype(int)) for each in (flagged, others))
    return compare(ours, theirs, nothing[0], FLIPS)


def main() -> None:
    """Print found artifacts and false alarms."""
    args = read_arguments(__doc__, ("timestamp", "brightness", "lsb"))
    print("| artifact | direction | false alarms | found | found in the resamples | pair minus signal, found |")
    print("|---|---|---|---|---|---|", flush=True)
    for artifact in args.artifact:
        resamples = [with_test(args, resample) for resample in iter_resamples(args, artifact)]
        found = {name: [flags(resample, name) for resample in resamples] for name in ("signal", "pair-1")}
        for name, each in found.items():
            shares = {kind: [one[kind] for one in each] for kind in ("false", "found")}
            cells = [f"{artifact} | {name}"]
            for flagged in shares.values():
                share = compare_shares(flagged, [np.zeros_like(one) for one in flagged])
                cells.append(f"{100 * share.value:.1f} ({100 * share.low:.1f} to {100 * share.high:.1f})")
            cells.append(", ".join(f"{100 * one.mean():.0f}" for one in shares["found"]))
            lead = compare_shares(shares["found"], [one["found"] for one in found["signal"]])
            paired = f"{100 * lead.value:+.1f} ({100 * lead.low:+.1f} to {100 * lead.high:+.1f})"
            print(f"| {' | '.join(cells)} | {'' if name == 'signal' else paired} |", flush=True)


if __name__ == "__main__":
    main()
