"""The overview takes pictures alone, and shows the low bits only where nothing else differs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hansfree.paper.aggregate import Finding, SubjectKey
from hansfree.paper.runner import Reproduction
from hansfree.paper.subjects import BaseModels
from tests.pipeline.studies import Natural, Single, opened

SHAPE = (2, 8, 8, 3)


def found(artifact: str, clean: np.ndarray, biased: np.ndarray, *, model: str = "demo") -> Finding:
    key = SubjectKey("d", artifact, model)
    return Finding(key=key, rows=[], arrays={"clean": clean, "biased": biased}, notes={"is_inserted": True})


def drawn(*findings: Finding) -> list[str]:
    return [drawing.name for drawing in Reproduction.named("overview")().present(findings)[1] if drawing]


def test_no_model_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BaseModels, "trained", None)
    with opened(tmp_path, Single()) as subject:
        finding = Reproduction.named("overview")().examine(subject)
        for name in ("clean", "biased"):
            images = getattr(subject.data, f"test_{name}")
            assert np.array_equal(finding.arrays[name], [images.pixels(row)[0] for row in range(4)])
    assert not (tmp_path / "models").exists()
    assert list(finding.rows) == []


def test_hidden_bits_are_shown_where_only_low_bits_differ() -> None:
    grey = np.full(SHAPE, 128, dtype=np.uint8)
    assert drawn(found("lsb", grey, grey ^ np.uint8(0b111))) == ["biases", "lsb"]
    assert drawn(found("bright", grey, grey + 40)) == ["biases"]
    assert drawn(found("nothing", grey, grey)) == ["biases"]
    assert drawn(found("bright", grey, grey + 40), found("lsb", grey, grey ^ 1)) == ["biases", "lsb"]


def test_images_in_whose_scenes_the_bias_is_are_no_twins(tmp_path: Path) -> None:
    overview = Reproduction.named("overview")()
    findings = []
    for study in (Natural(), Single(artifact="brightness")):
        with opened(tmp_path, study) as subject:
            findings.append(overview.examine(subject))
    captions = []
    for some in (findings[:1], findings[1:], findings):
        (drawing,) = overview.present(some)[1]
        assert drawing is not None
        captions.append(drawing.caption)
    assert "another one that has it" in captions[0]
    assert captions[1] == "The biases: each image without the artifact, and to its right with it."
    assert "to its right with it; for natural · plaster, images without" in captions[2]


def test_a_bias_stands_once_however_many_models_there_are() -> None:
    grey = np.full(SHAPE, 128, dtype=np.uint8)
    findings = [found("a", grey, grey), found("a", grey, grey, model="vgg16")]
    _, drawings = Reproduction.named("overview")().present(findings)
    assert drawings[0] is not None
    assert "for d · a." in drawings[0].alt
