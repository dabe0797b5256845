"""Q1: the samples' alignments are the paper's s, one by one, and the CAVs are explained on biased images."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from hansfree.cavs import CAV
from hansfree.paper.experiments import _cosines
from hansfree.paper.runner import Reproduction
from tests.pipeline.studies import Single, opened, rows_like


def test_s_of_every_sample_is_the_cosine_with_its_own_change(work: Path) -> None:
    with opened(work, Single()) as subject:
        finding = Reproduction.named("q1")().examine(subject)
        workspace, model = subject.experiment.workspace, subject.experiment.setting.model
        data = subject.data
    h = workspace.cavs["signal"].directions_[0]

    def pooled(image: torch.Tensor) -> np.ndarray:
        with torch.no_grad():
            maps = model.features[:11](image[None])[0]
        return maps.amax((1, 2)).double().numpy()

    cosines = []
    for biased, clean in zip(data.test_biased, data.test_clean):
        change = pooled(biased.image) - pooled(clean.image)
        cosines.append(sum(a * b for a, b in zip(change, h)) / np.sqrt(np.sum(change**2)))
    (mean,) = rows_like(finding.rows, cav="signal", metric="alignment_sample")
    assert mean.value == pytest.approx(np.mean(cosines), abs=1e-4)
    said = [float(number) for number in re.findall(r"-?\d\.\d\d", finding.notes["extremes"].alt)]
    assert said == pytest.approx([*sorted(cosines)[:-7:-1], *sorted(cosines)[:6]], abs=0.0051)
    assert {row.cav for row in finding.rows} == set(CAV.from_marks())
    maps = {name for name in finding.arrays if name.startswith("relevance/")}
    assert maps == {"relevance/signal", "relevance/ridge", "relevance/svm"}
    assert all(finding.arrays[name].shape == finding.arrays["masks"].shape for name in maps)


def test_a_sample_that_does_not_change_has_no_alignment() -> None:
    cav = CAV.named("signal")().fit(np.array([[0.0, 0.0], [1.0, 0.1], [0.0, 0.1], [1.0, 0.0]]), np.arange(4) % 2)
    found = _cosines(cav, np.array([[0.0, 0.0], [2.0, 0.0], [0.0, -3.0]]))
    assert np.isnan(found[0])
    assert found[1:] == pytest.approx([1, 0])
