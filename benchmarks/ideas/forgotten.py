"""Does RR-ClArC forget? Over networks of several seeds, or resamples of a table.

python -m benchmarks.ideas.forgotten
python -m benchmarks.ideas.forgotten --root real/redrawn --biased-class MEL --weights real/weights/... --size 64

RR-ClArC corrects the head by the paper's recipe, its strength chosen on validation images. A fresh probe looks for the
artifact in what each model computes, and the poisoned images try to bring it back. A fresh head on the same layers is
the yardstick.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import nn

import hansfree as hf
from benchmarks.comparison import Answers, Resample
from benchmarks.ideas.shared import (
    FLIPS,
    WITH_IT,
    Candidate,
    Selected,
    Tally,
    describe,
    in_memory,
    iter_resamples,
    learn_direction,
    read_arguments,
    select,
    with_test,
    write_settings,
)
from hansfree.metrics import predict_classes
from hansfree.models import predict_logits

SLOW = hf.FineTuning(optimizer="adam", learning_rate=1e-4, epochs=20, batch_size=128)  # of relearning
MODEL, HEAD, FRESH = "original model", "head corrected", "fresh head"


@dataclass(frozen=True, eq=False)
class Seen:
    """What one model does on test images."""

    answers: tuple[np.ndarray, np.ndarray]
    probe: hf.evaluation.Probe
    curve: hf.evaluation.RelearningCurve


def make_models(selected: Selected) -> dict[str, nn.Module]:
    """Return the models of a resample, which share the layers before the head."""
    resample = selected.resample
    return {
        MODEL: resample.model,
        HEAD: resample.cut.model_with(selected.heads["rr-clarc"], resample.model),
        FRESH: hf.evaluation.reset_head(resample.model, resample.train, seed=resample.number),
    }


def look(resample: Resample, model: nn.Module) -> Seen:
    """Ask a model, probe it and tempt it, on the test images of a resample."""
    sets = (resample.data.test_clean, resample.data.test_biased)
    clean, biased = (predict_classes(predict_logits(model, in_memory(images))) for images in sets)
    held_out = {"clean": resample.test.clean, "biased": resample.test.biased}
    curve = hf.evaluation.relearn(model, resample.train, **held_out, biased_class=resample.biased_class, tuning=SLOW)
    return Seen((clean, biased), hf.evaluation.probe_artifact(model, **held_out), curve)


def row(name: str, seen: dict[str, list[Seen]], said: dict[str, Answers], labels: np.ndarray) -> str:
    """Return the means over the networks; steps until half of the effect is back, and in how many it was."""
    probes, curves = ([getattr(each, part) for each in seen[name]] for part in ("probe", "curve"))
    left = [hf.evaluation.Forgetting(first.probe, probe).remaining.value for first, probe in zip(seen[MODEL], probes)]
    halves = [first.curve.probability_change[0].value / 2 for first in seen[MODEL]]
    steps = [curve.steps_until(half) for curve, half in zip(curves, halves)]
    back = [step for step in steps if step is not None]
    cells = [describe(said, labels, [name], measure) for measure in ("balanced_accuracy_clean", WITH_IT, FLIPS)]
    cells += [f"{np.mean([getattr(probe, place).value for probe in probes]):.2f}" for place in ("logits", "hidden")]
    cells += [f"{100 * np.mean(left):.0f}", f"{np.mean(back):.0f} ({len(back)} of {len(steps)})" if back else "never"]
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Print what is left of every artifact."""
    args = read_arguments(__doc__, ("timestamp", "lsb"))
    candidates = {
        "rr-clarc": Candidate(lambda resample: hf.RRClArC(learn_direction(resample, "signal"), tuning=resample.tuning))
    }
    for artifact in args.artifact:
        selected = [select(resample, candidates) for resample in iter_resamples(args, artifact)]
        write_settings(args, __file__, artifact, selected)
        models = [make_models(each) for each in selected]
        resamples = [with_test(args, each.resample) for each in selected]
        seen = {name: [look(resample, its[name]) for resample, its in zip(resamples, models)] for name in models[0]}
        said = {name: Answers(*map(np.stack, zip(*(each.answers for each in its)))) for name, its in seen.items()}
        labels = np.asarray(selected[0].resample.data.test_clean.labels)
        print(f"\n| {artifact} | clean | with it | flips | AUC, logits | AUC, hidden | change left | steps to half |")
        print("|---|---|---|---|---|---|---|---|")
        print("\n".join(row(name, seen, said, labels) for name in models[0]))
        tally = Tally()
        leads = [tally.compare(said, labels, HEAD, MODEL, measure) for measure in (WITH_IT, FLIPS)]
        print(f"{HEAD} minus {MODEL}: balanced accuracy with it {leads[0]}, flips {leads[1]}", flush=True)


if __name__ == "__main__":
    main()
