"""A run along a CAV that needs pairs: the doctor examines the direction of the pairs, not of the marks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from hansfree.experiments import Experiment
from hansfree.progress import silent
from hansfree.runfile.running import _diagnose
from hansfree.runs import open_run
from tests.experiments.test_pair_directions import make_setting


def test_the_doctor_examines_the_pairs_of_all_classes_as_the_corrections_use_them(tmp_path: Path) -> None:
    setting = make_setting("pair")
    ids = setting.data.train.ids
    source = SimpleNamespace(ids=ids, paths=[f"{id_}.png" for id_ in ids.tolist()])
    images: Any = SimpleNamespace(source=source, root=None, is_marked=np.zeros(len(ids), dtype=bool))
    with open_run(tmp_path / "run", {"cav": "pair"}) as run:
        experiment = Experiment(setting, run)
        experiment.cav_rows()
        found = _diagnose(experiment, run, images, silent)
        used = experiment.material.cav
    n = int((~setting.data.train.has_artifact).sum())
    assert (found.cav, found.n_artifact, found.n_clean) == ("pair", n, n)
    assert used.class_count_.tolist() == [n, n]
    assert f"{n} pairs of the same image" in found.verdict
    assert found.finding("class_overlap").value is not None
