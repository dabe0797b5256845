"""Sentences on a direction: each template once, from findings of given numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hansfree.cavs.diagnostics import Diagnosis, Finding, SuspectLabel, level_of
from hansfree.cavs.diagnostics.diagnosis import Agreement, ProposedLabels, Shuffled
from hansfree.cavs.diagnostics.resampling import images_for
from hansfree.report import describe_diagnosis, describe_finding

SUSPECT = SuspectLabel("img_18.png", True, -2.0, 99.0)


def diagnosis_of(error: float = 5.0, *, n_artifact: int = 105, n_clean: int = 45, **values: float | None) -> Diagnosis:
    """Return a visible artifact whose direction is off by so many degrees."""
    fewer, more = sorted((n_artifact, n_clean))
    numbers: dict[str, float | None] = {
        "expected_error": error,
        "split_half_angle": 1.4 * error,
        "bootstrap_angle": error,
        "held_out_auc": 0.95,
        "permutation_p": 0.01,
        "images_needed": images_for(10.0, fewer=fewer, more=more, angle=error),
        "class_overlap": 0.0,
        "suspect_labels": 0.0,
        "solver_agreement": 0.5,
        **values,
    }
    levels: dict[str, Any] = {
        name: "unknown" if value is None else level_of(name, abs(value))
        for name, value in numbers.items()
        if name not in ("images_needed", "solver_agreement")
    }
    return Diagnosis(
        cav="signal",
        n_artifact=n_artifact,
        n_clean=n_clean,
        is_paired=False,
        level="good",
        findings=tuple(
            Finding(name=name, value=value, stderr=0.012, interval=(3.0, 7.0), level=levels.get(name, "unknown"))
            for name, value in numbers.items()
        ),
        curve=(),
        suspect_labels=(),
        agreement=Agreement(("signal", "ridge"), ((1.0, 0.5), (0.5, 1.0))),
        shuffled=Shuffled(n=199, auc=0.61, angle=80.2, least_angle=70.4),
        proposed=None,
        scores=(),
        has_artifact=(),
    )


def sentence(diagnosis: Diagnosis, name: str) -> str:
    return describe_finding(diagnosis, diagnosis.finding(name))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "expected_error",
            "The direction lies about 5 degrees (3 to 7) from the one that unlimited images of this kind would give; "
            "9 % of the artifact's mean shift would stay after it is removed.",
        ),
        (
            "split_half_angle",
            "Directions of two random halves differ by 7 degrees (cosine 0.99); with shuffled labels by 80, and in 95 "
            "% of shuffles by more than 70.",
        ),
        (
            "bootstrap_angle",
            "Resampling the images turns the direction by 5 degrees (95 %: 3 to 7); pure noise in many channels would "
            "show 45.",
        ),
        (
            "held_out_auc",
            "Along the direction, held-out images with and without the artifact are separated with an AUC of 0.95 ± "
            "0.01.",
        ),
        (
            "permutation_p",
            "1 of 199 shuffles of the labels reached this AUC (p = 0.010); 95 % of them stayed below 0.61.",
        ),
        ("suspect_labels", "No artifact label looks wrong."),
    ],
)
def test_every_finding_has_a_sentence(name: str, expected: str) -> None:
    assert sentence(diagnosis_of(), name) == expected


def test_sentences_depend_on_what_is_known() -> None:
    found = diagnosis_of(permutation_p=0.005, images_needed=None, class_overlap=None, suspect_labels=None)
    assert sentence(found, "permutation_p").startswith("None of 199 shuffles")
    assert "cannot be estimated" in sentence(found, "images_needed")
    assert "was not examined" in sentence(found, "class_overlap")
    assert "cannot be detected" in sentence(found, "suspect_labels")
    assert "would stay" not in sentence(replace(found, cav="ridge"), "expected_error")
    solvers = "Cosines of signal with the other solvers: ridge 0.50; this does not count against it."
    assert sentence(found, "solver_agreement").startswith(solvers)
    assert "every artifact label is right" in sentence(replace(diagnosis_of(), is_paired=True), "suspect_labels")
    assert "the limit of what is called good" in describe_diagnosis(diagnosis_of(10.3))
    assert describe_diagnosis(diagnosis_of(permutation_p=0.5)).startswith("Do not use this direction")
    assert "hardly shows in this layer (held-out AUC 0.60)" in describe_diagnosis(diagnosis_of(held_out_auc=0.6))


@pytest.mark.parametrize(
    ("overlap", "words"),
    [(0.7, "removes the class: 49 % of"), (-0.4, "takes 16 % of"), (0.1, "leaves the classes apart")],
)
def test_an_overlap_with_the_class_is_in_the_verdict(overlap: float, words: str) -> None:
    found = diagnosis_of(class_overlap=overlap)
    assert words in sentence(found, "class_overlap")
    assert (words in describe_diagnosis(found)) == (abs(overlap) > 0.3)


@pytest.mark.parametrize(("error", "is_at_limit"), [(9.9, False), (10.3, True), (10.6, False)])
def test_an_error_at_the_limit_asks_for_no_more_images(error: float, is_at_limit: bool) -> None:
    found = diagnosis_of(error)
    words = describe_diagnosis(found)
    assert ("105 artifact images of the biased class are just about enough" in words) == is_at_limit
    assert ("as many images without the artifact as there are" in sentence(found, "images_needed")) == is_at_limit
    assert ("would bring" in words) == (error > 10.5)


@pytest.mark.parametrize(
    ("error", "n_artifact", "n_clean", "unlabelled", "start", "asked"),
    [
        (16.0, 81, 15, 300, "15 images without the artifact of", "Label about 42 more without it: that would bring"),
        (16.0, 15, 81, 300, "15 artifact images of", "Label about 42 more with it: that would bring"),
        (16.0, 81, 15, 40, "15 images without", "Label more without it, but the 40 images that are not labelled yet"),
        (16.0, 81, 15, None, "15 images without", "About 57 would bring its error to 10 degrees."),
        (40.0, 81, 15, None, "15 images without", "About 570 and as many of the others would bring its error"),
        (40.0, 81, 15, 2000, "15 images without", "Label about 560 more without it and 490 with it: that would bring"),
    ],
)
def test_the_kind_that_is_short_is_asked_for_and_never_more_than_there_are(
    error: float, n_artifact: int, n_clean: int, unlabelled: int | None, start: str, asked: str
) -> None:
    found = diagnosis_of(error, n_artifact=n_artifact, n_clean=n_clean)
    words = describe_diagnosis(found, unlabelled=unlabelled)
    assert words.startswith(start)
    assert asked in words
    paired = describe_diagnosis(replace(found, is_paired=True), unlabelled=unlabelled)
    assert paired.startswith(f"{n_artifact} pairs of the same image without and with the artifact are ")


@pytest.mark.parametrize(("count", "names"), [(1, ": img_18.png. Look at it."), (7, "img_18.png, .... Look at them.")])
def test_suspect_labels_are_named(count: int, names: str) -> None:
    found = replace(diagnosis_of(suspect_labels=float(count)), suspect_labels=(SUSPECT,) * count)
    assert f"wrongly labelled ({count} listed with the artifact, 0 without)" in sentence(found, "suspect_labels")
    assert describe_diagnosis(found).endswith(names)


@pytest.mark.parametrize(
    ("proposed", "place", "words"),
    [
        (ProposedLabels(140, 30, 30), -1, "Only the 60 marked images were examined; the other 140 that"),
        (ProposedLabels(140, 3, 7), 0, "This measures agreement with the labelling page's own proposal, not the truth: "
         "140 of these 150 labels were proposed, and a test needs 4 marked images with the artifact and 4 without "
         "(there are 3 and 7)."),
    ],
)  # fmt: skip
def test_proposed_labels_are_reported_first_where_they_are_examined(
    proposed: ProposedLabels, place: int, words: str
) -> None:
    plain, found = (describe_diagnosis(replace(diagnosis_of(), proposed=each)) for each in (None, proposed))
    before, after = (found.removesuffix(plain), "") if place == 0 else ("", found.removeprefix(plain))
    assert (before + after).strip().startswith(words)
    assert np.char.count(found, plain) == 1
