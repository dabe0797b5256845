"""Methods beyond the paper in an experiment: named they run, pairs are collected for them, and they have their say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hansfree._internal.store import open_run
from hansfree.corrections import LatentCorrection
from hansfree.corrections.selection import BalancedRule
from hansfree.corrections.training import FineTuning
from hansfree.data.artifacts import Timestamp
from hansfree.data.biased import insert_bias
from hansfree.data.lesions import SyntheticLesions
from hansfree.errors import DataError
from hansfree.models import build_model
from hansfree.pipeline.executors import plan_tasks
from hansfree.pipeline.experiment import Experiment
from hansfree.pipeline.workspace import Setting

RIVALS = [name for name in LatentCorrection.members() if not LatentCorrection.named(name).info.in_default_run]


@pytest.fixture(scope="module")
def setting() -> Setting:
    parts = [SyntheticLesions(n, size=32, classes=2, start=start) for n, start in ((80, 0), (60, 80), (60, 140))]
    return Setting(
        name="tiny",
        data=insert_bias(parts, Timestamp(), biased_class=0, share=0.5),
        model=build_model("demo", classes=2).eval(),
        layer="features.10",
        tuning=FineTuning(epochs=1, learning_rate=1e-2),
    )


@pytest.fixture(scope="module")
def experiment(setting: Setting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Experiment]:
    with open_run(tmp_path_factory.mktemp("runs") / "run", {"tiny": True}) as run:
        yield Experiment(setting, run)


@pytest.mark.parametrize("name", RIVALS)
def test_every_rival_runs_when_it_is_named(name: str, experiment: Experiment) -> None:
    rows = experiment.rows_for(experiment.plain(name))
    assert {row.method for row in rows} == {name}
    assert any(row.metric == "flip_rate" and row.split == "test" for row in rows)


@pytest.mark.parametrize(("name", "seeds"), [("dfr", {0}), ("leace", {0, 1, 2})])
def test_what_depends_on_no_seed_is_not_repeated(
    name: str, seeds: set[int], setting: Setting, experiment: Experiment, tmp_path: Path
) -> None:
    with open_run(tmp_path / "run", {"tiny": True}) as run:
        repeated = Experiment(replace(setting, repeats=3), run, cache=experiment.workspace.cache)
        assert {row.seed for row in repeated.rows_for(repeated.plain(name))} == seeds
        assert plan_tasks(repeated, name) == []


def test_seeds_follow_a_strength_that_is_chosen_anew(setting: Setting, experiment: Experiment, tmp_path: Path) -> None:
    with open_run(tmp_path / "run", {"tiny": True}) as run:
        for strength in (0.1, 0.2):
            given = replace(setting, repeats=2, strengths={"rr-clarc": (strength,)}, rule=BalancedRule(budget=1.0))
            repeated = Experiment(given, run, cache=experiment.workspace.cache)
            rows = repeated.rows_for(repeated.plain("rr-clarc"))
            assert {(row.seed, row.strength) for row in rows if row.split == "test"} == {(0, strength), (1, strength)}
            run.forget("rr-clarc")  # as a user does who deletes it


def test_remarks_stand_beside_the_strength(experiment: Experiment) -> None:
    told = {name: experiment.selection(experiment.plain(name))["remark"] for name in ("r-clarc", "dfr", "augmented")}
    assert "% of 60 test images without the artifact and" in told["r-clarc"]
    assert told["dfr"].startswith("No training image of class 1 has the artifact.")
    assert told["augmented"] == "It was trained on 60 images, each without and with the artifact."
    assert experiment.selection(experiment.plain("vanilla"))["remark"] == ""


def test_an_artifact_that_cannot_be_put_in_has_no_pairs(setting: Setting, tmp_path: Path) -> None:
    natural = replace(setting, data=replace(setting.data, train_biased=None))
    with open_run(tmp_path / "run", {"tiny": True}) as run:
        experiment = Experiment(natural, run)
        with pytest.raises(DataError, match=r"Set artifact\.insert"):
            experiment.rows_for(experiment.plain("augmented"))
