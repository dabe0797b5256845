"""Count false claims: verdicts of `hansfree run` on the settings of the benchmark, against true insertion.

    python -m benchmarks.claims --data ../shared/real --runs claims

Each setting with an inserted artifact is run as a user would, from artifact labels alone, with the default methods. A
claim is the verdict *corrected* or *like the reference model*; it is false where the true artifact flips more than 10
points above the benchmark's reference. The base models are those of the benchmark, trained where they are missing.
Finished settings are rows of ``results/claims.csv`` and are not run again; ``results/claims.md`` is the page.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

import hansfree as hf
from benchmarks.speed.measures import commit
from benchmarks.whole_network.__main__ import Trial, predict
from benchmarks.whole_network.settings import SETTINGS, Images
from hansfree.evaluation import TOLERATED
from hansfree.export import export_run, load_corrected
from hansfree.pipeline.config import CorrectionSection
from hansfree.reasons import VerdictLevel
from hansfree.report import markdown_table
from hansfree.report.text import LEVEL_TITLES

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
    commit: str


def judge(trial: Trial, folder: Path) -> Iterator[Claim]:
    """Run one setting with the default methods, and compare every verdict with true insertion."""
    data = trial.data
    reference = trial.reference
    assert reference is not None
    beside = _flips(reference, data.clean, data.biased)
    options: dict[str, Any] = {"method": CorrectionSection().methods, "device": "cpu", "seed": trial.trial}
    result = hf.unlearn(trial.original, data.train, val=data.val, test=data.clean, cache=folder / "run", **options)
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
        yield Claim(
            trial.setting.name,
            method,
            level,
            is_recommended,
            measured.get(method),
            flips,
            beside,
            is_false,
            commit() or "",
        )


def _flips(model: nn.Module, clean: Images, biased: Images) -> float:
    return float((predict(model.eval(), clean)[0] != predict(model, biased)[0]).mean())


def read_claims(table: Path) -> list[Claim]:
    """Return the claims of the table; none where there is no table."""
    if not table.exists():
        return []
    with table.open(newline="") as file:
        return [
            Claim(
                setting=row["setting"],
                method=row["method"],
                verdict=row["verdict"],
                is_recommended=row["is_recommended"] == "True",
                run_flips=float(row["run_flips"]) if row["run_flips"] else None,
                true_flips=float(row["true_flips"]),
                reference_flips=float(row["reference_flips"]),
                is_false=row["is_false"] == "True",
                commit=row["commit"],
            )
            for row in csv.DictReader(file)
        ]


def write_claims(table: Path, found: Sequence[Claim]) -> str:
    """Write the table and its page; return the sentence with the counts."""
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([Claim._fields, *found])
    claims = [claim for claim in found if claim.verdict in CLAIMS]
    settings = {claim.setting for claim in found}
    counts = (
        f"{len(claims)} claims in {len(found)} verdicts on {len(settings)} settings, "
        f"{sum(claim.is_false for claim in claims)} of them false"
    )
    header = ["setting", "method", "verdict", "recommended", "flips, run", "flips, true", "flips, reference", "claim"]
    rows = [
        [
            claim.setting,
            claim.method,
            LEVEL_TITLES[VerdictLevel(claim.verdict)],
            "yes" if claim.is_recommended else "",
            "n/a" if claim.run_flips is None else f"{100 * claim.run_flips:.1f}",
            f"{100 * claim.true_flips:.1f}",
            f"{100 * claim.reference_flips:.1f}",
            "" if claim.verdict not in CLAIMS else "false" if claim.is_false else "true",
        ]
        for claim in found
    ]
    commits = ", ".join(f"`{each[:7]}`" for each in dict.fromkeys(claim.commit for claim in found))
    page = f"""# Verdicts against true insertion

Made by `python -m benchmarks.claims --data DATA --runs RUNS` (`claims.csv`; commit {commits}). Every setting of
the [benchmark](whole_network.md) with an inserted artifact is run with the default methods of `hansfree run` from
artifact labels alone; then the true artifact is inserted into all test images. A claim is the verdict *corrected* or
*like the reference model*; it is false where the true artifact flips more than {100 * TOLERATED:g} points above the
reference. Flips in %.

{counts}.

{markdown_table(header, rows)}
"""
    table.with_suffix(".md").write_text(page, encoding="utf-8")
    return counts


def main() -> None:
    """Run all settings that the table lacks, and print how many claims are false."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with isic/ and weights/")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the run directories")
    parser.add_argument("--table", type=Path, default=Path("results/claims.csv"))
    inserted = [name for name, setting in SETTINGS.items() if setting.kind == "inserted"]
    parser.add_argument("--setting", action="append", choices=inserted, help="only these settings")
    given = parser.parse_args()
    found = read_claims(given.table)
    done = {claim.setting for claim in found}
    for name in given.setting or inserted:
        if name in done:
            continue
        found += judge(Trial(SETTINGS[name], 0, "all", given.data), given.runs / name)
        write_claims(given.table, found)
    print(write_claims(given.table, found))


if __name__ == "__main__":
    main()
