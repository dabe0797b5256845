"""The results page of the whole-network benchmark says what is in its table."""

from __future__ import annotations

import csv
from dataclasses import asdict, fields, replace
from pathlib import Path

from benchmarks.whole_network.__main__ import CANDIDATES, STRONGEST, Row
from benchmarks.whole_network.page import PAGES, write_pages

TRANSPLANTED = Row(
    "resnet18-timestamp", 0, "all", "original", None, rule_evidence="transplants", rule_clean=0.5, rule_biased=0.3,
    rule_effect=0.9, test_clean=0.5, test_biased=0.3, test_flips=0.9, test_worst_group=0.1, versus_reference=-0.2,
    versus_reference_low=-0.25, versus_reference_high=-0.15, passes=0.0,
)  # fmt: skip


def _candidates(original: Row, **better: float) -> list[Row]:
    """Return a row per candidate; the last is better."""
    rows = [
        replace(original, method=method, strength=strength, passes=10.0)
        for method, strength in (*CANDIDATES, STRONGEST)
    ]
    rows[-1] = replace(rows[-1], **better)
    return rows


def _write(path: Path, rows: list[Row]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([field.name for field in fields(Row)])
        for row in rows:
            writer.writerow(["" if value is None else value for value in asdict(row).values()])
    return path


def _page(tmp_path: Path, rows: list[Row]) -> str:
    for page in PAGES.values():
        (tmp_path / page).parent.mkdir(exist_ok=True)
    write_pages(_write(tmp_path / "table.csv", rows), tmp_path)
    guide, text = ((tmp_path / page).read_text() for page in PAGES.values())
    assert "{{" not in guide + text
    assert "Limits are met in" in guide
    return text


def test_a_corrected_setting(tmp_path: Path) -> None:
    reference = replace(TRANSPLANTED, method="reference", test_clean=0.55, test_biased=0.52, test_flips=0.1)
    good = _candidates(TRANSPLANTED, rule_biased=0.5, rule_effect=0.1, test_biased=0.51, test_flips=0.12)
    rr_clarc = replace(TRANSPLANTED, method="rr-clarc", strength=0.2, test_biased=0.35)
    rows = [TRANSPLANTED, reference, *good, rr_clarc, replace(reference, method="true-pairs", strength=1.0)]
    text = _page(tmp_path, rows)
    assert "| resnet18-timestamp | match 10 | 50.0 / 30.0 / 90.0 | 50.0 / 51.0 / 12.0 | 55.0 / 52.0 / 10.0 |" in text
    assert "Limits are met in 1 of 1 trials of 1 settings." in text
    assert "| mean |  | " in text
    assert "| match 10 | 51.0 / 12.0 | 10 |" in text


def test_too_many_flips_or_an_unfinished_trial_do_not_count(tmp_path: Path) -> None:
    reference = replace(TRANSPLANTED, method="reference", test_biased=0.52, test_flips=0.1)
    flipping = _candidates(TRANSPLANTED, rule_biased=0.5, rule_effect=0.1, test_biased=0.51, test_flips=0.3)
    assert "met in 0 of 1 trials" in _page(tmp_path, [TRANSPLANTED, reference, *flipping])
    assert "met in 0 of 0 trials" in _page(tmp_path, [TRANSPLANTED, reference, *flipping[1:]])


def test_trap_sets_and_association(tmp_path: Path) -> None:
    """Rows without flips and without biased accuracy by the rule."""
    original = replace(
        TRANSPLANTED, setting="resnet18-trap-1", rule_evidence="association", rule_biased=None, rule_effect=0.4,
        test_flips=None, val_auc=0.8, test_auc=0.4,
    )  # fmt: skip
    rows = [original, *_candidates(original, rule_effect=0.02, val_auc=0.74, test_auc=0.72)]
    text = _page(tmp_path, [*rows, *(replace(row, labels="known-10") for row in rows)])
    assert "| match 10 | **0.74 / 0.72** (10.0) |" in text
    assert "| resnet18-trap-1 | known-10 | match 10 | 50.0 / 30.0 / n/a | 50.0 / 30.0 / n/a |" in text
    guide = (tmp_path / next(iter(PAGES.values()))).read_text()
    assert "resnet18-trap-1 match 10 with 0.74 / 0.72 (original 0.80 / 0.40)" in guide
