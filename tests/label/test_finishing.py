"""The last word of the page: ready only if the doctor is content, and what is missing where he is not."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from hansfree.label.ranking import Judgement
from hansfree.label.session import Session, describe_finish
from tests.label.worlds import World


@pytest.mark.parametrize("level", ["good", "fair"])
def test_it_is_ready_when_the_doctor_is_content(unmarked: Session, level: str) -> None:
    found = describe_finish(unmarked.material, Judgement(40, 0.9, level, "Use it."), unmarked=0)  # type: ignore[arg-type]
    assert (found.title, found.missing, found.proposed) == ("Ready for a run", "", "")
    assert found.sentence.startswith("Set data.table in ")


@pytest.mark.parametrize(
    ("judgement", "missing"),
    [
        (Judgement(9, 0.6, "poor", "9 artifact images are too few."), "9 artifact images are too few."),
        (Judgement(5, None, "unknown", "The doctor needs 2 more."), "The doctor needs 2 more."),
        (None, "not answered yet"),
    ],
)
def test_else_it_says_what_is_missing(unmarked: Session, judgement: Judgement | None, missing: str) -> None:
    found = describe_finish(unmarked.material, judgement, unmarked=31)
    assert "not ready" in found.title
    assert missing in found.missing
    assert found.proposed.startswith("Not marked: 31 of the 40 images. Their bits are proposed")
    assert found.sentence.startswith("To run all the same: set data.table in ")


def test_it_waits_for_the_doctor(small: World, client: TestClient, session: Session) -> None:
    assert client.post("api/finish").status_code == 400
    for images, has_artifact in (([0, 1], True), ([2, 3, 4], False)):
        client.post("api/marks", json={"images": images, "has_artifact": has_artifact})
    told = client.post("api/finish").json()  # at once: these marks are not judged yet
    judgement = session.state().judgement
    assert judgement is not None
    assert judgement.marks == 5
    assert told["missing"] == f"The doctor says: {judgement.verdict}"
    assert "2 more with the artifact and 1 more without it" in told["missing"]
    assert f"set data.table in {small.file} to {small.table}" in told["sentence"]
    assert f"hansfree run {small.file}" in told["sentence"]
