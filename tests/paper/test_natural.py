"""Natural artifacts: groups that are large enough are scored, and the others are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hansfree.errors import DataError
from hansfree.paper.runner import Reproduction
from hansfree.pipeline.workspace import Plan
from tests.paper.conftest import Examine
from tests.pipeline.studies import PLAN, Joint, Single, opened, rows_like
from tests.pipeline.studies import Natural as NaturalStudy

NATURAL = Reproduction.named("natural")


def test_a_group_is_scored_on_its_own_images(examine: Examine, work: Path) -> None:
    finding = examine("natural", Single())
    with opened(work, Single()) as subject:
        labels, bits = subject.data.test_clean.labels, subject.study.flags()["ruler"]
        correct = subject.experiment.predictions.load("p-clarc")["correct_clean"]
    inside = (labels == 2) & ~bits
    (row,) = rows_like(finding.rows, method="p-clarc", group=2, artifact="no ruler")
    assert (row.value, row.n) == (pytest.approx(correct[inside].mean()), 25)
    assert row.stderr == pytest.approx(np.sqrt(row.value * (1 - row.value) / 25))
    assert {row.method for row in finding.rows} == {"original", "vanilla", "rrr", "p-clarc", "a-clarc", "rr-clarc"}


def test_a_group_that_is_too_small_is_named_not_scored(examine: Examine) -> None:
    finding = examine("natural", Single())
    assert not [row for row in finding.rows if row.artifact == "ruler"]
    text = NATURAL().present([finding])[0]
    assert "smooth-even, ruler: n/a (5 images)" in text
    assert "| smooth-even, no ruler | 25 |" in text


def test_a_method_without_admissible_strength_has_no_row(tmp_path: Path) -> None:
    with opened(tmp_path, Single(), strengths={"rr-clarc": (1e38,), "rrr": (0.1,)}) as subject:
        finding = NATURAL().examine(subject)
        assert subject.experiment.selection(subject.experiment.plain("rr-clarc"))["strength"] is None
    assert "rr-clarc" not in {row.method for row in finding.rows}
    assert "- demo · brightness · single, RR-ClArC: no strength is admissible: " in NATURAL().present([finding])[0]
    assert "rrr" in {row.method for row in finding.rows}


def test_data_that_say_nothing_of_natural_artifacts_are_refused_before_any_work() -> None:
    with pytest.raises(DataError, match="Synthetic lesions does not say which test images"):
        NATURAL().check(Joint(), Plan(**PLAN))


def test_a_natural_artifact_cannot_itself_be_the_bias() -> None:
    class Told(NaturalStudy):
        def flags(self) -> dict[str, np.ndarray]:
            return {"plaster": self.scenes.has_plaster[440:]}

    study = Told()
    study.data("demo")
    with pytest.raises(DataError, match="Natural shortcut has the artifact 'plaster' by nature, and its clean"):
        NATURAL().check(study, Plan(**PLAN))
