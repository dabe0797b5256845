"""The doctor's words, from numbers that are given: what is short, how many are asked for, what is named."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from hansfree.cavs.diagnostics import Agreement, SuspectLabel
from hansfree.cavs.diagnostics.findings import Measured, describe, judge
from hansfree.cavs.diagnostics.resampling import HeldOut, Null


@pytest.mark.parametrize(("error", "is_at_limit"), [(9.9, False), (10.3, True), (10.6, False)])
def test_an_error_at_the_limit_asks_for_no_more_images(error: float, is_at_limit: bool) -> None:
    measured = of_error(error, n_artifact=105, n_clean=45)
    assert measured.expected_error == pytest.approx(error)
    _, words = judge(measured, describe(measured))
    assert ("105 artifact images of the biased class are just about enough" in words) == is_at_limit
    assert ("would bring" in words) == (error > 10.5)


@pytest.mark.parametrize(
    ("error", "n_artifact", "n_clean", "unmarked", "start", "asked"),
    [
        (16.0, 81, 15, 300, "15 images without the artifact of", "Mark about 42 more without it: that would bring"),
        (16.0, 15, 81, 300, "15 artifact images of", "Mark about 42 more with it: that would bring"),
        (16.0, 81, 15, 40, "15 images without", "Mark more without it, but the 40 images that are not marked yet may"),
        (16.0, 81, 15, None, "15 images without", "About 57 would bring its error to 10 degrees."),
        (40.0, 81, 15, 2000, "15 images without", "Mark about 560 more without it and 490 with it: that would bring"),
    ],
)
def test_the_kind_that_is_short_is_asked_for_and_never_more_than_there_are(
    error: float, n_artifact: int, n_clean: int, unmarked: int | None, start: str, asked: str
) -> None:
    measured = of_error(error, n_artifact=n_artifact, n_clean=n_clean)
    _, words = judge(measured, describe(measured), unmarked=unmarked)
    assert words.startswith(start)
    assert asked in words


def test_one_degree_is_singular() -> None:
    measured = of_error(1.0, n_artifact=105, n_clean=45)
    findings = describe(measured)
    told = " ".join([judge(measured, findings)[1], *(found.sentence for found in findings)])
    assert "within about 1 degree of" in told
    assert "lies about 1 degree (" in told
    assert "turns the direction by 1 degree (" in told
    assert not re.search(r"\b1 degrees", told)


def test_one_image_that_looks_wrongly_marked_is_named_and_not_called_good() -> None:
    suspect_labels = (SuspectLabel("img_18.png", True, -2.0, 99.0),)
    found = describe(replace(of_error(5.0, n_artifact=105, n_clean=45), suspect_labels=suspect_labels))
    (finding,) = (each for each in found if each.name == "suspect_labels")
    assert finding.level == "fair"
    assert finding.sentence == (
        "1 image looks wrongly labelled (1 listed with the artifact, 0 without): img_18.png. Look at it."
    )


def of_error(error: float, *, n_artifact: int, n_clean: int) -> Measured:
    """Return what was measured of a visible artifact whose direction is off by so many degrees."""
    between = np.cos(np.radians(error)) ** 2 / (2 - np.cos(np.radians(error)) ** 2)  # of halves
    held_out = HeldOut(np.zeros(2), 0.95, 0.01, 3.0)
    return Measured(
        cav="signal",
        n_artifact=n_artifact,
        n_clean=n_clean,
        half_cosines=np.full(8, between),
        bootstrap_angles=np.full(8, error),
        held_out=held_out,
        null=Null(np.full(99, 0.5), np.zeros(99)),
        agreement=Agreement(("signal",), ((1.0,),)),
        overlap=np.zeros(8),
        suspect_labels=(),
    )
