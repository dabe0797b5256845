"""An experiment along a CAV that is learned from pairs of training images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hansfree._internal.hashing import seeded
from hansfree._internal.store import open_run
from hansfree.activations import collect_activations
from hansfree.cavs import PairCAV
from hansfree.corrections import LatentCorrection, Need, RRClArC
from hansfree.corrections.training import FineTuning
from hansfree.data.artifacts import Timestamp
from hansfree.data.biased import insert_bias
from hansfree.data.lesions import SyntheticLesions
from hansfree.errors import OptionError
from hansfree.models import build_model
from hansfree.pipeline.experiment import Experiment
from hansfree.pipeline.workspace import MethodSpec, Setting


def make_setting(cav: str) -> Setting:
    parts = [SyntheticLesions(n, size=32, classes=2, start=start) for n, start in ((80, 0), (60, 80), (60, 140))]
    with seeded(0):
        model = build_model("demo", classes=2).eval()
    return Setting(
        name="tiny",
        data=insert_bias(parts, Timestamp(), biased_class=0, share=0.5),
        model=model,
        layer="features.10",
        tuning=FineTuning(epochs=1),
        cav=cav,
        strengths={"rr-clarc": (1.0,)},
    )


def test_pairs_of_training_images_give_the_direction_and_its_row(tmp_path: Path) -> None:
    setting = make_setting("pair")
    with open_run(tmp_path / "run", {"cav": "pair"}) as run:
        experiment = Experiment(setting, run)
        quality = {row.metric: row.value for row in experiment.cav_rows() if row.method == "cav:pair"}
        rows = experiment.rows_for(experiment.plain("rr-clarc"))
    assert {row.cav for row in rows} == {"pair"}
    assert quality["alignment_mean"] > 0.9
    assert setting.data.pairs is not None
    clean, biased = (collect_activations(setting.model, setting.layer, images).pooled for images in setting.data.pairs)
    assert len(clean) == int((~setting.data.train.has_artifact).sum())
    expected = PairCAV().fit_pairs(clean, biased)
    np.testing.assert_allclose(experiment.workspace.cav.directions_, expected.directions_, atol=1e-4)


def test_marks_are_the_default_and_a_treatment_may_ask_for_pairs(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", {"cav": "signal"}) as run:
        experiment = Experiment(make_setting("signal"), run)
        assert "cav:pair" not in {row.method for row in experiment.cav_rows()}
        assert not list(run.path.glob("cav-*"))  # no pass over pairs that nobody asked for
        spec = MethodSpec(
            name="along-pairs",
            make=lambda cav, images, tuning: RRClArC(cav, tuning=tuning),
            cav="pair",
            strengths=(1.0,),
        )
        assert {row.cav for row in experiment.rows_for(spec)} == {"pair"}


def test_data_without_pairs_are_refused_before_any_work() -> None:
    setting = make_setting("signal")
    with pytest.raises(OptionError, match=r"Set artifact\.insert") as told:
        replace(setting, cav="pair", data=replace(setting.data, train_biased=None))
    using = [name for name, member in LatentCorrection.members().items() if Need.PAIRS in member.info.needs]
    assert len(using) >= 2
    assert str(told.value).endswith(f"('pair' as a CAV; {', '.join(map(repr, using))} as a method).")
