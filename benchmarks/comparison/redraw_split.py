"""Split an image table again: same sizes, stratified by class and artifact labels.

Usage: python -m benchmarks.comparison.redraw_split labels.csv SEED > redrawn.csv
"""

from __future__ import annotations

import csv
import sys

import numpy as np

from hansfree.data.splits import split_rows

PARTS = ("train", "val", "test")


def main() -> None:
    """Read a table with the column split, and print it with a new split."""
    table, seed = sys.argv[1:]
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file))
    splits = [row["split"] for row in rows]
    bits = [name for name in rows[0] if name not in ("image", "label", "split", "group")]
    groups = [row["group"] for row in rows] if "group" in rows[0] else None
    kinds = np.array(["-".join([row["label"], *(row[bit] for bit in bits)]) for row in rows])
    shares = [splits.count(part) / len(rows) for part in PARTS]
    parts = split_rows(np.unique(kinds, return_inverse=True)[1], shares=shares, groups=groups, seed=int(seed))
    for part, members in zip(PARTS, parts):
        for member in members:
            rows[member]["split"] = part
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


if __name__ == "__main__":
    main()
