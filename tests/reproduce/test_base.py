"""What a reader is told about a subject beside its scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hansfree.errors import UnknownNameError
from hansfree.reproduce import Finding, Reproduction
from hansfree.reproduce.base import facts_of, heatmaps_of, key_of
from hansfree.reproduce.keys import Facts, SubjectKey
from hansfree.studies import Published
from tests.experiments.examples import Single, opened

PUBLISHED = Published(scores={}, strengths={}, seconds={})


class InThePaper(Single):
    published = PUBLISHED


@pytest.mark.parametrize(
    ("study", "expected"),
    [
        (InThePaper(), PUBLISHED),
        (InThePaper(artifact="timestamp"), None),
        (InThePaper(size=40), None),
        (Single(), None),
    ],
    ids=["the paper's", "another artifact", "another size", "not in the paper"],
)
def test_the_papers_numbers_stand_only_beside_the_papers_bias(
    study: Single, expected: Published | None, tmp_path: Path
) -> None:
    with opened(tmp_path, study) as subject:
        facts = facts_of(subject)
        assert key_of(subject) == SubjectKey("single", study.artifact, "demo")
    assert facts.published is expected
    assert (facts.n_classes, facts.majority_rate, facts.paired) == (4, 0.25, {})
    assert facts.is_localized == (study.artifact == "timestamp")


def test_heatmaps_of_a_finding_are_those_called_relevance() -> None:
    arrays = {name: np.full((2, 4, 4), i) for i, name in enumerate(("images", "masks", "relevance/a", "relevance/b"))}
    maps = heatmaps_of(
        Finding(key=SubjectKey("d", "a", "m"), facts=Facts(), rows=[], arrays={**arrays, "other": np.zeros(1)})
    )
    assert list(maps.relevance) == ["a", "b"]
    assert maps.relevance["b"] is arrays["relevance/b"]
    assert (maps.images, maps.masks) == (arrays["images"], arrays["masks"])


def test_the_papers_experiments_are_all_there() -> None:
    assert {"overview", "q1", "table1", "runtime", "q3", "natural"} < set(Reproduction.members())
    assert {f"ablation-{part}" for part in ("cav", "strength", "target", "epochs")} < set(Reproduction.members())
    for member in Reproduction.members().values():
        assert member.title
        assert member.__doc__
    with pytest.raises(UnknownNameError, match="Did you mean 'table1'"):
        Reproduction.named("table")
