"""One experiment: the bias before and after, repeats, method specs, and methods beyond the paper."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hansfree._internal.store import open_run
from hansfree.cavs import CAV
from hansfree.corrections import LatentCorrection, RRClArC
from hansfree.corrections.selection import BalancedRule
from hansfree.corrections.training import FineTuning, Pretraining, pretrain
from hansfree.data.artifacts import Plaster, Timestamp
from hansfree.data.biased import BiasedData, insert_bias
from hansfree.data.datasets import InMemory
from hansfree.data.insertion import WithArtifact
from hansfree.data.lesions import SyntheticLesions
from hansfree.errors import DataError, OptionError
from hansfree.evaluation.results import Row
from hansfree.models import build_model
from hansfree.pipeline.executors import plan_tasks
from hansfree.pipeline.experiment import Experiment
from hansfree.pipeline.workspace import MethodSpec, Setting
from tests.pipeline.studies import rows_like, value_of, values_of


def stamped(n: int, start: int, share: float, only_class: int | None = None) -> InMemory:
    source = SyntheticLesions(n, size=48, classes=2, start=start)
    return InMemory(WithArtifact(source, Plaster(), share=share, only_class=only_class))


@pytest.fixture(scope="module")
def setting() -> Setting:
    train = stamped(800, 0, 0.5, 0)
    model = build_model("demo", classes=2)
    pretrain(model, train, Pretraining(epochs=6))
    data = BiasedData(
        train=train,
        val_clean=stamped(160, 800, 0.0),
        val_biased=stamped(160, 800, 1.0),
        test_clean=stamped(200, 960, 0.0),
        test_biased=stamped(200, 960, 1.0),
        biased_class=0,
        artifact="plaster",
        is_localized=True,
    )
    return Setting(
        name="tiny",
        data=data,
        model=model,
        layer="features.10",
        tuning=FineTuning(epochs=10),
        strengths={"rr-clarc": (0.1, 1.0, 10.0), "rrr": (0.1,)},
    )


@pytest.fixture(scope="module")
def done(setting: Setting, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Row], Experiment]:
    with open_run(tmp_path_factory.mktemp("runs") / "run", {"tiny": True}) as run:
        experiment = Experiment(setting, run)
        before = copy.deepcopy(setting.model.state_dict())
        rows = experiment.rows()
        assert all(torch.equal(tensor, before[name]) for name, tensor in setting.model.state_dict().items())
        return rows, experiment


def test_the_bias_is_there_before_and_less_after(done: tuple[list[Row], Experiment]) -> None:
    rows, _ = done
    assert value_of(rows, "original", "flip_rate") > 0.5
    assert value_of(rows, "rr-clarc", "flip_rate") < value_of(rows, "vanilla", "flip_rate") - 0.15


def test_the_intervals_hold_the_scores_of_the_table(done: tuple[list[Row], Experiment]) -> None:
    rows, experiment = done
    found = experiment.predictions.intervals()
    assert list(found) == ["original", *LatentCorrection.defaults()], "this setting has no clean-trained reference"
    for method, intervals in found.items():
        assert len(intervals) == 5
        for metric, (low, high) in intervals.items():
            assert low <= value_of(rows, method, metric) <= high
            assert low < high


def test_divergence_is_a_result(setting: Setting, tmp_path: Path) -> None:
    """Vanilla diverges by its learning rate, RR-ClArC has no strength that may be taken; the run goes on."""
    broken = replace(
        setting, tuning=FineTuning(epochs=1, learning_rate=1e38), strengths={"rr-clarc": (1e30,), "rrr": (1.0,)}
    )
    with open_run(tmp_path / "run", {"tiny": True}) as run:
        experiment = Experiment(broken, run)
        rows = experiment.rows()
        selections = {name: experiment.selection(experiment.plain(name)) for name in ("vanilla", "rr-clarc")}
    assert selections["vanilla"]["diverged"] == [None]
    assert selections["vanilla"]["objection"] == "diverged"
    assert selections["vanilla"]["reason"] == "has no strength to choose, but diverged"
    assert selections["rr-clarc"] | {"rule": ""} == {
        "rule": "",
        "strength": None,
        "reason": "no strength is admissible: diverged",
        "objection": "",
        "remark": "",
        "diverged": [1e30],
        "admissible": False,
    }
    assert not [row for row in rows if row.method == "rr-clarc" and row.chosen]
    assert not (tmp_path / "run" / "corrected" / "rr-clarc.safetensors").exists()


def test_sets_that_prove_nothing_are_refused(setting: Setting) -> None:
    with pytest.raises(DataError, match="biased images do not have the artifact"):
        replace(setting.data, test_biased=setting.data.test_clean)
    few = [copy.copy(getattr(setting.data, name)) for name in ("val_clean", "val_biased")]
    for images in few:
        images.labels = np.zeros(len(images), dtype=np.int64)
        images.labels[:10] = 1
    with pytest.raises(DataError, match=r"at least 25 of them; there are: .+ 150, .+ 10"):
        replace(setting, data=replace(setting.data, val_clean=few[0], val_biased=few[1]))
    with pytest.raises(OptionError, match="repeats is 0"):
        replace(setting, repeats=0)
    with pytest.raises(OptionError, match="repeats is 3, but optimizer='converged' depends on no seed"):
        replace(setting, repeats=3, tuning=FineTuning(optimizer="converged"))


def test_a_class_with_few_validation_images_does_not_count_and_that_is_said(setting: Setting, tmp_path: Path) -> None:
    """One rare class must not stop the others from being corrected: real data have such classes."""
    rare = [copy.copy(getattr(setting.data, name)) for name in ("val_clean", "val_biased")]
    for images in rare:
        images.labels = images.labels.copy()
        images.labels[:20] = 2
    wide = build_model("demo", classes=3)
    data = replace(setting.data, val_clean=rare[0], val_biased=rare[1])
    few = replace(setting, data=data, model=wide, tuning=FineTuning(epochs=1))
    assert setting.uncounted == ()
    assert few.uncounted == (2,)
    with open_run(tmp_path / "run", {"tiny": True}) as run:
        experiment = Experiment(few, run)
        rows = experiment.rows_for(experiment.plain("vanilla"))
        assert "class 2 has too few" in experiment.selection(experiment.plain("vanilla"))["rule"]
    assert {row.n for row in rows_like(rows, split="val")} == {140}


# Further seeds


@pytest.mark.parametrize("name", ["vanilla", "rr-clarc", "p-clarc"])
def test_a_repeat_is_what_training_with_that_seed_gives(
    name: str, setting: Setting, done: tuple[list[Row], Experiment], tmp_path: Path
) -> None:
    quick = replace(setting, tuning=FineTuning(epochs=2, optimizer="adam", learning_rate=1e-3), repeats=3)
    with open_run(tmp_path / "all", {"tiny": True}) as run:
        experiment = Experiment(quick, run, cache=done[1].workspace.cache)
        rows = experiment.rows_for(experiment.plain(name))
        chosen = experiment.selection(experiment.plain(name))["strength"]
    assert (chosen is not None) == (name == "rr-clarc")
    for seed in (1, 2):
        repeated = rows_like(rows, seed=seed)
        assert {(row.strength, row.chosen, row.split, row.epoch) for row in repeated} == {(chosen, 1, "test", None)}
        alone = replace(quick, tuning=replace(quick.tuning, seed=seed), repeats=1, strengths={name: (chosen or 0.0,)})
        with open_run(tmp_path / f"{seed}", {"tiny": True}) as run:
            fresh = Experiment(alone, run, cache=done[1].workspace.cache)
            expected = values_of(rows_like(fresh.rows_for(fresh.plain(name)), split="test"))
        expected = {key: value for key, value in expected.items() if key[-1] != "artifact_relevance"}
        assert values_of(repeated) == expected  # to the last bit
    logits = [value_of(rows, name, "probability_change", seed=seed) for seed in (0, 1, 2)]
    assert len(set(logits)) == 3, "the seeds must make a difference"
    assert {row.seed for row in rows if row.split == "val"} == {0}


# Treatments


def test_treatments_have_columns_of_their_own_and_are_kept(
    setting: Setting, done: tuple[list[Row], Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = replace(setting, tuning=FineTuning(epochs=1))

    def aimed(*, cav: CAV, images: object, tuning: FineTuning) -> LatentCorrection:
        return RRClArC(cav, target="logprob", norm="absolute", tuning=tuning)

    treatments = [
        MethodSpec(name="along ridge", make=RRClArC.for_run, cav="ridge", strengths=(2.0, 1.0, 2.0)),
        MethodSpec(name="aimed", make=aimed, strengths=(1.0,)),
        MethodSpec.plain("rr-clarc"),
    ]

    def everything() -> list[list[Row]]:
        with open_run(tmp_path / "run", {"tiny": True}) as run:
            experiment = Experiment(quick, run, cache=done[1].workspace.cache)
            return [experiment.original_rows(), *(experiment.rows_for(spec) for spec in treatments)]

    first = everything()
    _, along, aimed_rows, plain = first
    assert {(row.cav, row.target, row.norm) for row in along} == {("ridge", "expected", "squared")}
    assert {(row.cav, row.target, row.norm) for row in aimed_rows} == {("signal", "logprob", "absolute")}
    assert sorted({row.strength for row in along}) == [1.0, 2.0]
    assert len(rows_like(along, metric="flip_rate")) == 2, "a strength that is given twice is tried once"
    assert sorted({row.strength for row in plain}) == [0.1, 1.0, 10.0], "the setting's come before the method's grid"
    kept = {path.stem for path in (tmp_path / "run" / "stages").glob("*.json")}
    assert kept == {"cavs", "original", "along ridge", "aimed", "rr-clarc"}

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a finished stage is done again")

    monkeypatch.setattr("hansfree.corrections.latent.train_heads", fail)
    assert everything() == first


RIVALS = [name for name in LatentCorrection.members() if not LatentCorrection.named(name).info.in_default_run]


@pytest.fixture(scope="module")
def untrained() -> Setting:
    parts = [SyntheticLesions(n, size=32, classes=2, start=start) for n, start in ((80, 0), (60, 80), (60, 140))]
    return Setting(
        name="tiny",
        data=insert_bias(parts, Timestamp(), biased_class=0, share=0.5),
        model=build_model("demo", classes=2).eval(),
        layer="features.10",
        tuning=FineTuning(epochs=1, learning_rate=1e-2),
    )


@pytest.fixture(scope="module")
def experiment(untrained: Setting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Experiment]:
    with open_run(tmp_path_factory.mktemp("runs") / "run", {"tiny": True}) as run:
        yield Experiment(untrained, run)


@pytest.mark.parametrize("name", RIVALS)
def test_every_rival_runs_when_it_is_named(name: str, experiment: Experiment) -> None:
    rows = experiment.rows_for(experiment.plain(name))
    assert {row.method for row in rows} == {name}
    assert any(row.metric == "flip_rate" and row.split == "test" for row in rows)


@pytest.mark.parametrize(("name", "seeds"), [("dfr", {0}), ("leace", {0, 1, 2})])
def test_what_depends_on_no_seed_is_not_repeated(
    name: str, seeds: set[int], untrained: Setting, experiment: Experiment, tmp_path: Path
) -> None:
    with open_run(tmp_path / "run", {"tiny": True}) as run:
        repeated = Experiment(replace(untrained, repeats=3), run, cache=experiment.workspace.cache)
        assert {row.seed for row in repeated.rows_for(repeated.plain(name))} == seeds
        assert plan_tasks(repeated, name) == []


def test_seeds_follow_the_selected_strength(untrained: Setting, experiment: Experiment, tmp_path: Path) -> None:
    with open_run(tmp_path / "run", {"tiny": True}) as run:
        for strength in (0.1, 0.2):
            given = replace(untrained, repeats=2, strengths={"rr-clarc": (strength,)}, rule=BalancedRule(budget=1.0))
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


def test_an_artifact_that_cannot_be_put_in_has_no_pairs(untrained: Setting, tmp_path: Path) -> None:
    natural = replace(untrained, data=replace(untrained.data, train_biased=None))
    with open_run(tmp_path / "run", {"tiny": True}) as run:
        experiment = Experiment(natural, run)
        with pytest.raises(DataError, match=r"Set artifact\.insert"):
            experiment.rows_for(experiment.plain("augmented"))
