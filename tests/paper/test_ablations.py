"""Q4: every part is varied alone, and the heatmaps along the strength are those of the models trained with it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from safetensors.torch import load_file

from hansfree.cavs import CAV
from hansfree.corrections.rr_clarc import Norm
from hansfree.models import build_model
from hansfree.paper.runner import Reproduction
from tests.paper.conftest import Examine
from tests.pipeline.studies import Single, opened, rows_like


def test_every_cav_has_the_same_strengths(examine: Examine) -> None:
    finding = examine("ablation-cav", Single())
    rows = rows_like(finding.rows, method="rr-clarc")
    assert {row.cav for row in rows} == set(CAV.from_marks())
    assert {(row.cav, row.strength) for row in rows} == {(name, s) for name in CAV.from_marks() for s in (0.1, 10.0)}
    assert rows_like(finding.rows, method="vanilla", split="test")


def test_along_the_run_s_own_cav_nothing_is_trained_twice(work: Path, examine: Examine) -> None:
    examine("ablation-cav", Single())
    with opened(work, Single()) as subject:
        stages = {path.stem for path in (subject.run.path / "stages").glob("rr-clarc*.json")}
    assert stages >= {"rr-clarc", "rr-clarc cav-svm"}
    assert "rr-clarc cav-signal" not in stages


def test_targets_and_norms_are_crossed(examine: Examine) -> None:
    finding = examine("ablation-target", Single())
    pairs = {(row.target, row.norm) for row in finding.rows}
    crossed = {(target, norm) for target in ("random", "all", "logprob") for norm in get_args(Norm)}
    assert pairs == crossed | {("expected", "squared")}
    strengths = {pair: {row.strength for row in finding.rows if (row.target, row.norm) == pair} for pair in pairs}
    assert len({tuple(sorted(found)) for found in strengths.values()}) == 1


def test_epochs_are_those_of_all_strengths_on_validation_images(examine: Examine) -> None:
    finding = examine("ablation-epochs", Single())
    seen = {(row.strength, row.epoch) for row in rows_like(finding.rows, split="val")}
    assert seen == {(strength, epoch) for strength in (0.1, 10.0) for epoch in (1, 2)}


def test_heatmaps_along_the_strength_are_the_trained_models(examine: Examine, work: Path) -> None:
    finding = examine("ablation-strength", Single())
    assert {name for name in finding.arrays if "/" in name} == {"relevance/0.1", "relevance/10"}
    assert not np.array_equal(finding.arrays["relevance/0.1"], finding.arrays["relevance/10"])
    with opened(work, Single()) as subject:
        experiment = subject.experiment
        chosen = experiment.selection(experiment.plain("rr-clarc"))["strength"]
        model = build_model("demo", classes=4).eval()
        model.load_state_dict(load_file(subject.run.path / "corrected" / "rr-clarc.safetensors"))
        row = experiment.workspace.shown_rows[:1]
        expected = experiment.workspace.pictures.heatmaps(model, row)[0]
        assert np.array_equal(finding.arrays["image"], subject.data.test_biased.pixels(int(row[0]))[0])
    np.testing.assert_allclose(finding.arrays[f"relevance/{chosen:g}"], expected, atol=1e-4 * np.abs(expected).max())


def test_heatmaps_along_the_strength_are_kept(examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    first = examine("ablation-strength", Single())
    monkeypatch.setattr("hansfree.corrections.latent.train_heads", None)
    again = examine("ablation-strength", Single())
    assert all(np.array_equal(first.arrays[name], again.arrays[name]) for name in first.arrays)
    assert Reproduction.named("ablation-strength")().present([again])[1][0] is not None
