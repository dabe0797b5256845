"""Count false claims: verdicts of `hansfree run` on the settings of the benchmark, against true insertion.

    python -m benchmarks.claims --data ../shared/real --runs claims

Each setting with an inserted artifact is run as a user would, from artifact labels alone, with the default methods. A
claim is the verdict *corrected* or *like the reference model*; it is false where the true artifact flips more than 10
points above the benchmark's reference. The base models are those of the benchmark, trained where they are missing; a
stopped command resumes.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from torch import nn

import hansfree as hf
from benchmarks.whole_network.__main__ import Trial, predict
from benchmarks.whole_network.settings import SETTINGS, Images
from hansfree.evaluation import TOLERATED
from hansfree.export import export_run, load_corrected
from hansfree.reasons import VerdictLevel

CLAIMS = (VerdictLevel.CORRECTED, VerdictLevel.AS_REFERENCE)


class Claim(NamedTuple):
    """The verdict on one method's model, and its flips by the run and by true insertion."""

    setting: str
    method: str
    verdict: str
    is_recommended: bool
    run_flips: float | None
    true_flips: float
    reference_flips: float
    is_false: bool


def judge(trial: Trial, folder: Path) -> Iterator[Claim]:
    """Run one setting with the default methods, and compare every verdict with true insertion."""
    data = trial.data
    reference = trial.reference
    assert reference is not None
    beside = _flips(reference, data.clean, data.biased)
    result = hf.unlearn(
        trial.original, data.train, val=data.val, test=data.clean, cache=folder / "run", device="cpu", seed=trial.trial
    )
    measured = {row.method: row.value for row in result.scores if row.metric == "flip_rate" and row.chosen}
    for method, verdict in result.verdicts.items():
        if verdict.level == VerdictLevel.UNUSABLE:  # it has no weights to use
            continue
        exported = export_run(result.directory, method, original=trial.original, out=folder / method, force=True)
        model = load_corrected(trial.original, exported.weights.weights)
        flips = _flips(model, data.clean, data.biased)
        is_false = verdict.level in CLAIMS and flips > beside + TOLERATED
        is_recommended = method == result.recommended
        level = verdict.level.value
        yield Claim(trial.setting.name, method, level, is_recommended, measured.get(method), flips, beside, is_false)


def _flips(model: nn.Module, clean: Images, biased: Images) -> float:
    return float((predict(model.eval(), clean)[0] != predict(model, biased)[0]).mean())


def main() -> None:
    """Run all settings, write ``claims.csv``, and print how many claims are false."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with isic/ and weights/")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the run directories")
    inserted = [name for name, setting in SETTINGS.items() if setting.kind == "inserted"]
    parser.add_argument("--setting", action="append", choices=inserted, help="only these settings")
    given = parser.parse_args()
    found = list[Claim]()
    for name in given.setting or inserted:
        for claim in judge(Trial(SETTINGS[name], 0, "all", given.data), given.runs / name):
            print(*claim, flush=True)
            found.append(claim)
        with (given.runs / "claims.csv").open("w", newline="") as file:
            csv.writer(file).writerows([Claim._fields, *found])
    claims = [claim for claim in found if claim.verdict in CLAIMS]
    print(f"{len(claims)} claims in {len(found)} verdicts, {sum(claim.is_false for claim in claims)} of them false")


if __name__ == "__main__":
    main()
