"""The overview takes pictures alone, and shows the low bits only where nothing else differs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hansfree.experiments.base_models import BaseModels
from hansfree.reproduce import Finding, Reproduction
from hansfree.reproduce.keys import Facts, SubjectKey
from tests.experiments.examples import Single, opened

SHAPE = (2, 8, 8, 3)


def found(artifact: str, clean: np.ndarray, biased: np.ndarray, *, model: str = "demo") -> Finding:
    key = SubjectKey("d", artifact, model)
    return Finding(key=key, facts=Facts(), rows=[], arrays={"clean": clean, "biased": biased})


def drawn(*findings: Finding) -> list[str]:
    return [drawing.name for drawing in Reproduction.named("overview")().present(findings).drawings if drawing]


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
    assert drawn(found("scene", grey, grey[:1])) == ["biases"], "other images have no bits to compare"


def test_a_bias_stands_once_however_many_models_there_are() -> None:
    grey = np.full(SHAPE, 128, dtype=np.uint8)
    shown = Reproduction.named("overview")().present([found("a", grey, grey), found("a", grey, grey, model="vgg16")])
    assert shown.drawings[0] is not None
    assert "for d · a." in shown.drawings[0].alt
