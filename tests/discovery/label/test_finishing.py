"""The last word of the page: ready only if the doctor is content, and what is missing where he is not."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from hansfree.discovery.label.ranking import LabelDiagnostics
from hansfree.discovery.label.session import Session, describe_finish
from tests.discovery.label.worlds import World


@pytest.mark.parametrize("level", ["good", "fair"])
def test_it_is_ready_when_the_doctor_is_content(unlabelled: Session, level: str) -> None:
    found = describe_finish(unlabelled.data, LabelDiagnostics(40, 0.9, level, "Use it."), unlabelled=0)  # type: ignore[arg-type]
    assert (found.title, found.missing, found.proposed) == ("Ready for a run", "", "")
    assert found.sentence.startswith("Set data.table in ")


@pytest.mark.parametrize(
    ("diagnostics", "missing"),
    [
        (LabelDiagnostics(9, 0.6, "poor", "9 artifact images are too few."), "9 artifact images are too few."),
        (LabelDiagnostics(5, None, "unknown", "Diagnostics need 2 more."), "Diagnostics need 2 more."),
        (None, "not finished"),
    ],
)
def test_else_it_says_what_is_missing(unlabelled: Session, diagnostics: LabelDiagnostics | None, missing: str) -> None:
    found = describe_finish(unlabelled.data, diagnostics, unlabelled=31)
    assert "not ready" in found.title
    assert missing in found.missing
    assert found.proposed.startswith("31 of the 40 images are not labelled.")
    assert found.sentence.startswith("To run anyway: set data.table in ")


def test_it_waits_for_the_doctor(small: World, client: TestClient, session: Session) -> None:
    assert client.post("api/finish").status_code == 400
    for images, has_artifact in (([0, 1], True), ([2, 3, 4], False)):
        client.post("api/labels", json={"images": images, "has_artifact": has_artifact})
    told = client.post("api/finish").json()  # at once: these marks are not judged yet
    diagnostics = session.state().diagnostics
    assert diagnostics is not None
    assert diagnostics.n_labels == 5
    assert told["missing"] == diagnostics.verdict
    assert "2 more with the artifact and 1 more without it" in told["missing"]
    assert f"set data.table in {small.file} to {small.table}" in told["sentence"]
    assert f"hansfree run {small.file}" in told["sentence"]
