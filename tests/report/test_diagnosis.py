"""The figure of the diagnosis, read back from matplotlib's own objects."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hansfree.cavs.diagnostics import LIMIT, Diagnosis, diagnose_cav
from hansfree.report.figures import draw_diagnosis
from tests.cavs.samples import gaussian


def diagnosis(*, size: float = 8.0, wrong: int = 0, n_artifact: int = 40) -> Diagnosis:
    X, bits, _ = gaussian(n_artifact, 40, 12, size=size)
    bits[np.flatnonzero(bits)[:wrong]] = False
    return diagnose_cav(X, bits)


def test_the_panels_show_the_diagnosis(tmp_path: Path) -> None:
    found = diagnosis(wrong=2)
    drawing = draw_diagnosis(found)
    drawing.figure.savefig(tmp_path / "drawn.png")  # warnings are errors: the layout warns late
    curve, agreement, scores = drawing.figure.axes
    points = curve.containers[0].lines[0].get_xydata()
    np.testing.assert_allclose(points, [(point.n, point.angle) for point in found.curve])
    assert [text.get_text() for text in agreement.texts][:2] == ["1.00", f"{found.agreement.cosines[0][1]:.2f}"]
    (marks,) = (mark for mark in scores.collections if mark.get_label() == "listed without it, looks wrong")
    np.testing.assert_allclose(marks.get_offsets()[:, 0], [mark.score for mark in found.suspect_labels])
    assert found.verdict in drawing.alt
    assert found.verdict not in drawing.caption, "the page says it above the figure"
    assert LIMIT in drawing.caption


@pytest.mark.parametrize(("size", "n_artifact"), [(0.0, 20), (1.0, 4), (1.0, 12)])
def test_poor_directions_are_drawn_too(tmp_path: Path, size: float, n_artifact: int) -> None:
    drawing = draw_diagnosis(diagnosis(size=size, n_artifact=n_artifact))
    drawing.figure.savefig(tmp_path / "drawn.png")
    assert len(drawing.figure.axes) == 3
