"""A monitor from a finished run: what it flags, what it says of itself, and what it refuses."""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from hansfree import api
from hansfree.cavs import load_cavs
from hansfree.errors import RunError
from hansfree.export.monitor import Monitor, monitor_run
from hansfree.pipeline.checks import prepare_run
from hansfree.pipeline.config import read_run_file
from tests.conftest import Call
from tests.pipeline.user import build, draw, make_user, write_run

RATE = 0.05


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user with a finished run, and new pictures, four of each kind; nobody may change it."""
    user = make_user(tmp_path_factory.mktemp("watched") / "user")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hansfree.api.write_report", lambda out: out / "report.html")
        correction = {"methods": ["vanilla"], "epochs": 1, "strengths": {}}
        api.run(prepare_run(read_run_file(write_run(user / "run.yaml", correction=correction))))
    rng = np.random.default_rng(7)
    (user / "new").mkdir()
    for kind in ("with", "without"):
        for number in range(4):
            Image.fromarray(draw(number % 2, kind == "with", rng)).save(user / "new" / f"{kind}-{number}.png")
    return user


def test_the_scores_are_those_of_the_runs_direction_on_the_models_input(finished: Path) -> None:
    fitted = monitor_run(finished / "run", false_fire_rate=RATE)
    looked, skipped = fitted.score_images([finished / "new"])
    assert skipped == []
    assert [Path(one.image).name for one in looked] == sorted(os.listdir(finished / "new"))
    model = build()
    model.load_state_dict(fitted.prepared.setting.model.state_dict())
    pictures = [np.asarray(Image.open(one.image)).astype(np.float32) for one in looked]
    images = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2) / 127.5 - 1
    pooled = model.eval()[:3](images).amax((2, 3)).detach().numpy()  # `layer: auto` is the second convolution
    expected = load_cavs(finished / "run" / "cavs.safetensors")["signal"].decision_function(pooled)
    np.testing.assert_allclose([one.score for one in looked], expected, rtol=1e-4, atol=1e-4)
    assert [one.is_flagged for one in looked] == (expected > fitted.monitor.threshold).tolist()
    assert fitted.monitor.hits is not None
    assert fitted.monitor.hits.n == 52
    assert fitted.monitor.hits.value > fitted.monitor.false_fires.value + 0.3
    again = Monitor.load(fitted.file, model)
    np.testing.assert_allclose(again.scores(images), expected, rtol=1e-4, atol=1e-4)


def test_on_the_command_line(call: Call, finished: Path, tmp_path: Path) -> None:
    first = finished / "new" / "with-0.png"
    code, out, err = call("monitor", finished / "run", first, finished / "new", "--false-fire-rate", RATE)
    assert code == 0, err
    rows = list(csv.DictReader(out.splitlines()))
    assert [row["image"] for row in rows[:2]] == [str(first), str(first)]
    assert len(rows) == 9
    flagged = sum(row["flagged"] == "1" for row in rows)
    assert f"{flagged} of 9 images are flagged." in err
    assert "Set on 52 clean images to flag at most 5.0% of such." in err
    table = tmp_path / "flags.csv"
    words = ("monitor", finished / "run", finished / "new", "--false-fire-rate", RATE, "--out", table)
    assert call(*words)[:2] == (0, f"table: {table}\n")
    assert len(table.read_text().splitlines()) == 9
    code, _, err = call(*words)
    assert (code, "exists already" in err) == (1, True)
    code, _, err = call("monitor", finished / "run", finished / "new")
    assert (code, "52 clean images cannot set a threshold" in err) == (1, True)


def test_what_is_no_finished_run_or_another_one_is_refused(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not the folder of a finished"):
        monitor_run(tmp_path)
    moved = Path(shutil.copytree(finished, tmp_path / "user"))
    (moved / "run" / "run.yaml").write_text((moved / "run" / "run.yaml").read_text().replace(str(finished), str(moved)))
    assert monitor_run(moved / "run", false_fire_rate=RATE).file == moved / "run" / "monitor.safetensors"
    os.utime(moved / "images" / "val-0-0-0.png", (1, 1))  # a picture that changed
    with pytest.raises(RunError, match="holds another run"):
        monitor_run(moved / "run", false_fire_rate=RATE)
