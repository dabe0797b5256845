"""A run along a CAV that needs pairs: the doctor examines the direction of the pairs, not of the marks."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hansfree._internal.store import open_run
from hansfree.pipeline.diagnosis import diagnose_direction
from hansfree.pipeline.experiment import Experiment
from tests.pipeline.test_pair_directions import make_setting


def test_the_doctor_examines_the_pairs_of_all_classes_as_the_corrections_use_them(tmp_path: Path) -> None:
    setting = make_setting("pair")
    nobody = np.zeros(int(setting.data.train.ids.max()) + 1, dtype=bool)  # what was inserted needs no marks
    with open_run(tmp_path / "run", {"cav": "pair"}) as run:
        experiment = Experiment(setting, run)
        experiment.cav_rows()
        found = diagnose_direction(experiment, is_marked=nobody)
        used = experiment.workspace.cav
    n = int((~setting.data.train.has_artifact).sum())
    assert (found.cav, found.n_artifact, found.n_clean) == ("pair", n, n)
    assert used.class_count_.tolist() == [n, n]
    assert f"{n} pairs of the same image" in found.verdict
    assert found.finding("class_overlap").value is not None
