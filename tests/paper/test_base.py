"""What a reader is told about a subject beside its scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import save_file

from hansfree.models import build_model
from hansfree.paper.aggregate import Finding, SubjectKey
from hansfree.paper.dataset import Published
from hansfree.paper.runner import finding_of, heatmaps_by_subject, reasons_of
from tests.pipeline.studies import Single, opened

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
        finding = finding_of(subject, [])
    facts = finding.facts
    assert finding.key == SubjectKey("single", study.artifact, "demo")
    assert facts.published is expected
    assert (facts.chance_level, facts.majority_rate, facts.paired) == (0.25, 0.25, {})
    assert facts.is_localized == (study.artifact == "timestamp")


WEIGHTS = "training started from random weights"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, [WEIGHTS]),
        ({"epochs": 2}, [WEIGHTS]),  # as many as the recipe has
        ({"epochs": 1}, [WEIGHTS, "1 epoch of training, in the paper 2"]),
        ({"corrected": "last"}, [WEIGHTS, "only the last linear layer was corrected"]),
        ({"correction_epochs": 3}, [WEIGHTS, "3 epochs of correction, in the paper 10"]),
        ({"weights": "file"}, []),
        ({"weights": "file", "trained": "head", "epochs": 5}, ["only what follows the layer was trained"]),
    ],
)
def test_departures_from_the_paper_are_named(options: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    if "weights" in options:
        save_file(build_model("demo", classes=4).state_dict(), tmp_path / "demo.safetensors")
        options = {**options, "weights": str(tmp_path / "demo.safetensors")}
    with opened(tmp_path, InThePaper(), **{"correction_epochs": 10, **options}) as subject:
        facts = finding_of(subject, []).facts
    assert facts.published is PUBLISHED, "the numbers are shown all the same"
    assert len(facts.departures) == len(words)
    for found, begin in zip(facts.departures, words):
        assert found.startswith(begin)


def test_facts_of_given_data_read_no_image(tmp_path: Path) -> None:
    with opened(tmp_path, Single()) as subject:
        finding = finding_of(subject, [], data=Single().data("demo"), reasons={"rrr": "why"})
        assert finding.facts.reasons == {"rrr": "why"}
        assert "data" not in vars(subject)


def test_reasons_are_given_where_a_strength_was_chosen_or_refused(tmp_path: Path) -> None:
    with opened(tmp_path, Single(), strengths={"rr-clarc": (1e38,), "rrr": (0.1,)}) as subject:
        reasons = reasons_of(subject.experiment, ["vanilla", "rrr", "rr-clarc"])
    assert reasons["rr-clarc"].startswith("no strength is admissible: ")
    assert reasons["rrr"] == "the only admissible strength (0 rejected)"
    assert "vanilla" not in reasons


def test_heatmaps_of_a_finding_are_those_called_relevance() -> None:
    arrays = {name: np.full((2, 4, 4), i) for i, name in enumerate(("images", "masks", "relevance/a", "relevance/b"))}
    shown = Finding(key=SubjectKey("d", "a", "m"), rows=[], arrays={**arrays, "other": np.zeros(1)})
    without = Finding(key=SubjectKey("d", "b", "m"), rows=[])
    found = heatmaps_by_subject([shown, without])
    assert list(found) == [shown.key]
    maps = found[shown.key]
    assert list(maps.relevance) == ["a", "b"]
    assert maps.relevance["b"] is arrays["relevance/b"]
    assert (maps.images, maps.masks) == (arrays["images"], arrays["masks"])
