"""False claims are counted by true insertion, whatever the run itself measured."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.whole_network.settings import Images
from torch import Tensor, nn

from benchmarks import claims
from hansfree.data.examples import IMAGENET
from hansfree.reasons import Verdict, VerdictLevel


class Brightest(nn.Module):
    """Answers by the brightness of an image, or always the same."""

    def __init__(self, is_constant: bool) -> None:
        super().__init__()
        self.is_constant = is_constant

    def forward(self, images: Tensor) -> Tensor:
        bright = images.mean((1, 2, 3)) * (not self.is_constant)
        return torch.stack([torch.zeros_like(bright), bright], dim=1)


def images(value: int) -> Images:
    pixels = np.full((40, 8, 8, 3), value, dtype=np.uint8)
    bits = np.zeros(40, dtype=bool)
    return Images(pixels, np.arange(40) % 2, bits, np.arange(40), class_names=("a", "b"), transform=IMAGENET)


def test_a_claim_is_false_where_the_true_artifact_still_flips(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    levels = {
        "match": VerdictLevel.CORRECTED,
        "rr-clarc": VerdictLevel.CORRECTED,
        "p-clarc": VerdictLevel.PARTLY_CORRECTED,
        "vanilla": VerdictLevel.UNUSABLE,
    }
    result = SimpleNamespace(
        directory=tmp_path,
        scores=[SimpleNamespace(metric="flip_rate", method="rr-clarc", chosen=1, value=0.05)],
        verdicts={name: Verdict(level) for name, level in levels.items()},
        recommended="match",
    )

    def export(run: Path, method: str, **options: Any) -> Any:
        return SimpleNamespace(weights=SimpleNamespace(weights=method))

    monkeypatch.setattr(claims.hf, "unlearn", lambda *args, **options: result)
    monkeypatch.setattr(claims, "export_run", export)
    monkeypatch.setattr(claims, "load_corrected", lambda model, method: Brightest(method == "match"))
    dark, bright = images(0), images(255)
    data = SimpleNamespace(train=dark, val=dark, clean=dark, biased=bright)
    trial: Any = SimpleNamespace(
        setting=SimpleNamespace(name="s"), trial=0, data=data, original=Brightest(False), reference=Brightest(True)
    )
    found = {claim.method: claim for claim in claims.judge(trial, tmp_path)}
    assert [*found] == ["match", "rr-clarc", "p-clarc"]
    assert [claim.is_false for claim in found.values()] == [False, True, False]
    assert found["rr-clarc"][4:7] == (0.05, 1.0, 0.0)
    assert found["match"].is_recommended


def test_finished_settings_are_not_run_again_and_fill_a_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[str] = []

    def judge(trial: Any, folder: Path) -> list[claims.Claim]:
        ran.append(trial.setting.name)
        return [claims.Claim(trial.setting.name, "match", "corrected", True, None, 0.5, 0.1, True, "abc")]

    monkeypatch.setattr(claims, "judge", judge)
    command = ["claims", "--data", ".", "--runs", str(tmp_path), "--table", str(tmp_path / "claims.csv")]
    for chosen in (["resnet18-lsb"], ["resnet18-lsb", "resnet18-patch"]):
        options = [word for name in chosen for word in ("--setting", name)]
        monkeypatch.setattr("sys.argv", [*command, *options])
        claims.main()
    assert ran == ["resnet18-lsb", "resnet18-patch"]
    assert [claim.setting for claim in claims.read_claims(tmp_path / "claims.csv")] == ran
    page = (tmp_path / "claims.md").read_text()
    assert "2 claims in 2 verdicts on 2 settings, 2 of them false." in page
    assert "| resnet18-patch | match | corrected | yes | n/a | 50.0 | 10.0 | false |" in page
