"""Table 1: what is left out is not run, and what was run stands on the page."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from hansfree.paper.runner import Reproduction
from tests.paper.conftest import Examine
from tests.pipeline.studies import Single, opened, value_of

TABLE1 = Reproduction.named("table1")


def test_every_method_is_compared_with_every_other_on_the_same_images(examine: Examine) -> None:
    finding = examine("table1", Single())
    methods = {"original", "vanilla", "rrr", "p-clarc", "a-clarc", "rr-clarc"}
    models = methods | {"clean-trained"}
    assert {frozenset(pair) for pair in finding.facts.paired} == set(map(frozenset, combinations(models, 2)))
    assert len(finding.facts.paired) == 21, "each pair once"
    difference, _ = finding.facts.paired["p-clarc", "original"]["accuracy_clean"]
    scores = [value_of(finding.rows, name, "accuracy_clean") for name in ("p-clarc", "original")]
    assert difference == pytest.approx(scores[0] - scores[1])
    difference, _ = finding.facts.paired["p-clarc", "original"]["balanced_accuracy_biased"]
    scores = [value_of(finding.rows, name, "balanced_accuracy_biased") for name in ("p-clarc", "original")]
    assert difference == pytest.approx(scores[0] - scores[1])
    assert {row.method for row in finding.rows} >= methods | {"clean-trained", "cav:signal"}
    assert {name for name in finding.arrays if "/" in name} == {f"relevance/{name}" for name in methods}


def test_a_method_that_is_left_out_is_not_run_and_the_page_says_so(tmp_path: Path) -> None:
    with opened(tmp_path, Single(), left_out=("rrr",)) as subject:
        finding = TABLE1().examine(subject)
        assert not (subject.run.path / "stages" / "rrr.json").exists()
    assert not [row for row in finding.rows if row.method == "rrr"]
    assert not [pair for pair in finding.facts.paired if "rrr" in pair]
    text = TABLE1().present([finding])[0]
    assert "| RRR | not run |" in text
    assert "## Best strengths" in text
    assert "see `hansfree reproduce q3`" in text
    assert "A-ClArC costs the selected" not in text
    assert "| Vanilla | " in text.partition("## Differences on the same images")[2].partition("##")[0]


def test_why_a_strength_was_taken_or_none_stands_on_the_page(tmp_path: Path) -> None:
    with opened(tmp_path, Single(), strengths={"rr-clarc": (1e38,), "rrr": (0.1,)}) as subject:
        finding = TABLE1().examine(subject)
    text = TABLE1().present([finding])[0]
    assert "| RR-ClArC (failed: no strength is admissible: " in text
    assert "| the only admissible strength (0 rejected) |" in text
