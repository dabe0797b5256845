"""What may happen to a run: kills, a full disk, dead workers, two at once; it ends in a sentence and a whole folder."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors import SafetensorError
from torch.utils.data import DataLoader, Dataset, _utils, get_worker_info

from hansfree import api
from hansfree._internal.files import make_array, written_atomically
from hansfree._internal.store import open_run
from hansfree.activations import collect_activations
from hansfree.api import Result
from hansfree.errors import DataError, RunError
from hansfree.pipeline.checks import prepare_run
from hansfree.pipeline.config import read_run_file
from tests.pipeline.user import build, half_written, make_user, run_unreported, write_run

ROOT = Path(__file__).parents[2]
resource = pytest.importorskip("resource")


def run(file: Path) -> Result:
    return api.run(prepare_run(read_run_file(file)))


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_user(tmp_path_factory.mktemp("own") / "user")


@pytest.fixture(autouse=True)
def _without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansfree.api.write_report", lambda out: out / "report.html")


@pytest.fixture(scope="module")
def expected(user: Path) -> bytes:
    """What an undisturbed run writes."""
    run_unreported(user / "calm.yaml", out="calm/run")
    return (user / "calm" / "run" / "results.csv").read_bytes()


def test_a_few_trials_of_every_kind_of_stress(tmp_path: Path) -> None:
    counts = {"kill": 2, "damage": 2, "input": 4, "disk": 1, "two": 1, "change": 1}
    options = [word for kind, count in counts.items() for word in (f"--{kind}", str(count))]
    command = [sys.executable, "-m", "benchmarks.stress", "--work", tmp_path / "work", "--results", tmp_path, *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "stress.json").read_text())
    assert not summary["broken"]
    assert summary["kills"] >= 1
    assert {kind for kind, found in summary["outcomes"].items() if found} == counts.keys()


@pytest.mark.parametrize("limit", [2_000, 12_000, 40_000])
def test_a_disk_that_runs_full_stops_the_run_and_room_lets_it_go_on(
    user: Path, expected: bytes, tmp_path: Path, limit: int
) -> None:
    """The system refuses whatever goes beyond so many bytes per file: shards, arrays, weights or the table."""
    file = write_run(user / f"full-{limit}.yaml", out=f"full-{limit}/run")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            run(file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    folder = user / f"full-{limit}" / "run"
    assert not list(half_written(folder))
    assert not [path for path in folder.rglob(".*") if path.name != ".lock"], "nothing is left lying about"
    run(file)
    assert (folder / "results.csv").read_bytes() == expected


def test_what_the_system_says_through_safetensors_is_an_oserror(tmp_path: Path) -> None:
    def fail(sentence: str) -> None:
        with written_atomically(tmp_path / "x") as temporary:
            temporary.write_bytes(b"half")
            raise SafetensorError(sentence)

    with pytest.raises(OSError, match=r"\[Errno 28\]"):
        fail("Error while serializing: I/O error: No space left on device (os error 28)")
    with pytest.raises(SafetensorError, match="other"):
        fail("other")
    assert not list(tmp_path.iterdir())


def test_an_array_takes_its_room_at_once(tmp_path: Path) -> None:
    """Else a full disk would kill the process with SIGBUS while the array is filled."""
    array = make_array(tmp_path / "x.npy", (1000, 25), "float32")
    assert array.shape == (1000, 25)
    assert not array.any()
    assert (tmp_path / "x.npy").stat().st_blocks * 512 >= 100_000


class Deadly(Dataset[Any]):
    """Its third image kills the process that reads it, or raises what it was given, in a worker only."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, int]:
        if index == 3 and get_worker_info() is not None:
            if self.error is not None:
                raise self.error
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.zeros(3, 16, 16), 0, index % 2


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (None, "A process that reads images died: .* Use fewer workers; with none"),
        (DataError("x.png is damaged."), r"^x\.png is damaged\.$"),
        (KeyError("nose"), "^A process that reads images failed with KeyError: 'nose'$"),
    ],
)
def test_what_happens_in_a_worker_is_one_sentence(
    error: Exception | None, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_utils, "MP_STATUS_CHECK_INTERVAL", 0.1)  # torch waits so long for workers that failed
    loader = DataLoader(Deadly(error), batch_size=2, num_workers=1)
    with pytest.raises(DataError, match=sentence) as told:
        collect_activations(build().eval(), "2", loader)
    assert "\n" not in str(told.value)
    del told
    gc.collect()  # the loader waits when it is deleted


def test_a_run_folder_is_for_one_process_at_a_time(user: Path, expected: bytes) -> None:
    folder = user / "calm" / "run"
    config = yaml.safe_load((folder / "config.yaml").read_text())
    with open_run(folder, config), pytest.raises(RunError, match="in use by another process"):
        run(user / "calm.yaml")
    run(user / "calm.yaml")  # all is done: nothing changes
    assert (folder / "results.csv").read_bytes() == expected
