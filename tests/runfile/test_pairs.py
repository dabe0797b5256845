"""A run along a CAV that needs pairs: the doctor examines the pairs, not the marks."""

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


def test_the_doctor_examines_the_pairs_of_the_biased_class(tmp_path: Path) -> None:
    setting = make_setting("pair")
    ids = setting.data.train.ids
    source = SimpleNamespace(ids=ids, paths=[f"{id_}.png" for id_ in ids.tolist()])
    images: Any = SimpleNamespace(source=source, root=None, is_marked=np.zeros(len(ids), dtype=bool))
    with open_run(tmp_path / "run", {"cav": "pair"}) as run:
        found = _diagnose(Experiment(setting, run), run, images, silent)
    train = setting.data.train
    of_class = int(((train.labels == 0) & ~train.has_artifact).sum())
    assert (found.n_artifact, found.n_clean) == (of_class, of_class)
