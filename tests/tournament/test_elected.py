"""What the results page says of the elected is what the kept scores say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def elected(*paths: Path) -> str:
    script = ROOT / "docs" / "examples" / "elected.py"
    return subprocess.run([sys.executable, script, *paths], check=True, capture_output=True, text=True).stdout


def test_the_page_has_the_table_of_the_kept_scores() -> None:
    redrawn = sorted((ROOT / "results" / "table" / "redrawn").glob("*/results.csv"), key=str)
    table = elected(*redrawn, ROOT / "results" / "synthetic" / "tournament" / "results.csv")
    assert table.count("\n") == 2 + 15 + 4
    assert table in (ROOT / "docs" / "tournament.md").read_text(encoding="utf-8")


def test_the_best_within_the_budget_is_elected(tmp_path: Path) -> None:
    scores = {  # validation without and with the artifact, test with it
        "original": (0.60, 0.30, 0.30),
        "clean-trained": (0.60, 0.60, 0.60),
        "rr-clarc": (0.60, 0.40, 0.40),
        "rr-clarc/pairs/balanced": (0.59, 0.50, 0.51),
        "augmented/balanced": (0.57, 0.55, 0.56),
    }
    rows = ["experiment,method,seed,split,metric,value"]
    for method, (clean, biased, test) in scores.items():
        rows += [
            f"a,{method},0,val,balanced_accuracy_clean,{clean}",
            f"a,{method},0,val,balanced_accuracy_biased,{biased}",
        ]
        rows += [f"a,{method},0,test,balanced_accuracy_biased,{test}", f"a,{method},0,test,flip_rate,0.1"]
    kept = tmp_path / "results.csv"
    kept.write_text("\n".join(rows))
    assert (
        elected(kept).splitlines()[-1].endswith("| 51.0 | 56.0 | 51.0 | 10.0 | 1 of 1 |")
    )  # three points lost are too many
    kept.write_text("\n".join(rows).replace(",0.57", ",0.58"))
    assert elected(kept).splitlines()[-1].endswith("| 51.0 | 56.0 | 56.0 | 10.0 | 0 of 1 |")
