"""One experiment: the bias before and after, repeats, method specs, methods beyond the paper, tasks in any order."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hansfree.cavs import CAV
from hansfree.corrections import LatentCorrection, RRClArC, latent
from hansfree.corrections.selection import BalancedRule
from hansfree.corrections.training import FineTuning, head_loop
from hansfree.errors import DataError, OptionError
from hansfree.evaluation.results import Row
from hansfree.models import build_model
from hansfree.pipeline.experiment import Experiment
from hansfree.pipeline.paths import Task
from hansfree.pipeline.workspace import MethodSpec, Setting
from hansfree.reasons import Reason, ReasonCode
from tests.pipeline.studies import rows_like, value_of, values_of
from tests.pipeline.worlds import Mixing, make_data, opened, stamped


@pytest.fixture(scope="module")
def setting() -> Setting:
    """A model that takes the artifact for the class, behind a layer that keeps the two apart."""
    return Setting(
        name="tiny",
        data=make_data(),
        model=Mixing().eval(),
        layer="apart",
        tuning=FineTuning(epochs=10, optimizer="adam", learning_rate=3e-2),
        strengths={"rr-clarc": (0.1, 1.0, 10.0), "rrr": (0.1,)},
    )


@pytest.fixture(scope="module")
def untrained() -> Setting:
    """A convolutional network, and an artifact that can be inserted into training images."""
    return Setting(
        name="tiny",
        data=stamped(80, 60, 60),
        model=build_model("demo", classes=2).eval(),
        layer="features.10",
        tuning=FineTuning(epochs=1, learning_rate=1e-2),
    )


@pytest.fixture(scope="module")
def done(setting: Setting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[Row], Experiment]]:
    before = copy.deepcopy(setting.model.state_dict())
    with opened(setting, tmp_path_factory.mktemp("runs") / "run") as experiment:
        rows = experiment.rows(LatentCorrection.defaults())
        assert all(torch.equal(tensor, before[name]) for name, tensor in setting.model.state_dict().items())
        yield rows, experiment


@pytest.fixture(scope="module")
def experiment(untrained: Setting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Experiment]:
    with opened(untrained, tmp_path_factory.mktemp("runs") / "run") as experiment:
        yield experiment


def test_the_bias_is_there_before_and_gone_after(done: tuple[list[Row], Experiment]) -> None:
    rows, _ = done
    assert value_of(rows, "original", "flip_rate") > 0.35
    assert value_of(rows, "vanilla", "flip_rate") > 0.35
    assert value_of(rows, "rr-clarc", "flip_rate") < 0.05
    assert value_of(rows, "rr-clarc", "balanced_accuracy_clean") > 0.9


def test_divergence_is_a_result(setting: Setting, tmp_path: Path) -> None:
    """Vanilla diverges by its learning rate, RR-ClArC has no admissible strength; the run continues."""
    tuning = FineTuning(epochs=1, learning_rate=1e38)
    with opened(replace(setting, tuning=tuning, strengths={"rr-clarc": (1e30,)}), tmp_path / "run") as experiment:
        vanilla, rr_clarc = (experiment.selection(experiment.plain(name)) for name in ("vanilla", "rr-clarc"))
        rows = experiment.rows(["vanilla", "rr-clarc"])
    diverged = asdict(Reason(ReasonCode.DIVERGED))
    assert (vanilla["diverged"], vanilla["admissible"], vanilla["rejection"]) == ([None], False, diverged)
    assert vanilla["reason"] == asdict(Reason(ReasonCode.NO_STRENGTH_REJECTED, {"rejection": diverged}))
    assert rr_clarc == {
        "rule": asdict(setting.rule.summary()),
        "strength": None,
        "reason": asdict(Reason(ReasonCode.NONE_ADMISSIBLE, {"rejections": [diverged]})),
        "rejection": None,
        "details": [],
        "diverged": [1e30],
        "admissible": False,
    }
    assert not rows_like(rows, method="rr-clarc", chosen=1)
    assert not (tmp_path / "run" / "corrected" / "rr-clarc.safetensors").exists()


def relabelled(setting: Setting, label: int, rows: slice) -> Setting:
    """Return the setting with another label of some validation images."""
    parts = {name: copy.copy(getattr(setting.data, name)) for name in ("val_clean", "val_biased")}
    for images in parts.values():
        images.labels = images.labels.copy()
        images.labels[rows] = label
    return replace(setting, data=replace(setting.data, **parts))


def test_sets_that_prove_nothing_are_refused(setting: Setting) -> None:
    with pytest.raises(DataError, match="biased images do not have the artifact"):
        replace(setting.data, test_biased=setting.data.test_clean)
    with pytest.raises(DataError, match=r"at least 25 of them; there are: .+ 115, .+ 5"):
        relabelled(setting, 0, slice(10, None))
    with pytest.raises(OptionError, match="repeats is 0"):
        replace(setting, repeats=0)
    with pytest.raises(OptionError, match="repeats is 3, but optimizer='converged' depends on no seed"):
        replace(setting, repeats=3, tuning=FineTuning(optimizer="converged"))


def test_a_class_with_few_validation_images_does_not_count_and_that_is_said(untrained: Setting, tmp_path: Path) -> None:
    """One rare class must not stop the others from being corrected: real data have such classes."""
    few = replace(relabelled(untrained, 2, slice(6)), model=build_model("demo", classes=3))
    assert (untrained.uncounted, few.uncounted) == ((), (2,))
    with opened(few, tmp_path / "run") as experiment:
        rows = experiment.rows_for(experiment.plain("vanilla"))
        assert experiment.selection(experiment.plain("vanilla"))["rule"]["values"]["uncounted"] == [2]
    assert {row.n for row in rows_like(rows, split="val")} == {54}


@pytest.mark.parametrize("name", ["vanilla", "rr-clarc"])
def test_a_repeat_is_what_training_with_that_seed_gives(
    name: str, setting: Setting, done: tuple[list[Row], Experiment], tmp_path: Path
) -> None:
    quick = replace(setting, tuning=replace(setting.tuning, epochs=4), repeats=3)
    with opened(quick, tmp_path / "all", done[1].workspace.cache) as experiment:
        rows = experiment.rows_for(experiment.plain(name))
        chosen = experiment.selection(experiment.plain(name))["strength"]
    assert (chosen is not None) == (name == "rr-clarc")
    for seed in (1, 2):
        repeated = rows_like(rows, seed=seed)
        assert {(row.strength, row.chosen, row.split, row.epoch) for row in repeated} == {(chosen, 1, "test", None)}
        alone = replace(quick, tuning=replace(quick.tuning, seed=seed), repeats=1, strengths={name: (chosen or 0.0,)})
        with opened(alone, tmp_path / f"{seed}", done[1].workspace.cache) as fresh:
            expected = values_of(rows_like(fresh.rows_for(fresh.plain(name)), split="test"))
        expected = {key: value for key, value in expected.items() if key[-1] != "artifact_relevance"}
        assert values_of(repeated) == expected  # to the last bit
    assert len({value_of(rows, name, "probability_change", seed=seed) for seed in (0, 1, 2)}) == 3
    assert {row.seed for row in rows if row.split == "val"} == {0}


def test_specs_have_columns_of_their_own_and_finished_stages_are_not_repeated(
    setting: Setting, done: tuple[list[Row], Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def aimed(*, cav: CAV, images: object, tuning: FineTuning) -> LatentCorrection:
        return RRClArC(cav, target="logprob", norm="absolute", tuning=tuning)

    specs = [
        MethodSpec(name="along ridge", make=RRClArC.for_run, cav="ridge", strengths=(2.0, 1.0, 2.0)),
        MethodSpec(name="aimed", make=aimed, strengths=(1.0,)),
        MethodSpec.plain("rr-clarc"),
    ]

    def everything() -> list[list[Row]]:
        with opened(
            replace(setting, tuning=FineTuning(epochs=1)), tmp_path / "run", done[1].workspace.cache
        ) as experiment:
            return [experiment.original_rows(), *(experiment.rows_for(spec) for spec in specs)]

    first = everything()
    _, along, aimed_rows, plain = first
    assert {(row.cav, row.target, row.norm) for row in along} == {("ridge", "expected", "squared")}
    assert {(row.cav, row.target, row.norm) for row in aimed_rows} == {("signal", "logprob", "absolute")}
    assert sorted({row.strength for row in along}) == [1.0, 2.0]
    assert len(rows_like(along, metric="flip_rate", split="test")) == 2, "a strength that is given twice is tried once"
    assert sorted({row.strength for row in plain}) == [0.1, 1.0, 10.0], "the setting's come before the method's grid"
    stages = {path.stem for path in (tmp_path / "run" / "stages").glob("*.json")}
    assert stages == {"cavs", "original", "along ridge", "aimed", "rr-clarc"}
    monkeypatch.setattr("hansfree.corrections.latent.train_heads", None)
    assert everything() == first


RIVALS = [name for name in LatentCorrection.members() if not LatentCorrection.named(name).info.in_default_run]


@pytest.mark.parametrize("name", RIVALS)
def test_every_rival_runs_when_it_is_named(name: str, experiment: Experiment) -> None:
    rows = experiment.rows_for(experiment.plain(name))
    assert {row.method for row in rows} == {name}
    assert any(row.metric == "flip_rate" and row.split == "test" for row in rows)


def test_seeds_follow_the_selected_strength(untrained: Setting, experiment: Experiment, tmp_path: Path) -> None:
    for strength in (0.1, 0.2):
        given = replace(untrained, repeats=2, strengths={"rr-clarc": (strength,)}, rule=BalancedRule(budget=1.0))
        with opened(given, tmp_path / "run", experiment.workspace.cache) as repeated:
            rows = repeated.rows_for(repeated.plain("rr-clarc"))
            assert {(row.seed, row.strength) for row in rows if row.split == "test"} == {(0, strength), (1, strength)}
            repeated.run.forget("rr-clarc")  # as a user does who deletes it


def test_an_artifact_that_cannot_be_put_in_has_no_pairs(untrained: Setting, tmp_path: Path) -> None:
    natural = replace(untrained, data=replace(untrained.data, train_biased=None))
    with opened(natural, tmp_path / "run") as experiment, pytest.raises(DataError, match=r"Set artifact\.insert"):
        experiment.rows_for(experiment.plain("augmented"))


# Tasks


STRENGTHS = (0.1, 1.0, 10.0, 100.0, 1e30)  # the last one diverges
NAME = "rr-clarc"
APART = [Task(NAME, "strengths", number) for number in range(3)]
SEEDS = [Task(NAME, "seed", seed) for seed in (1, 2)]


@pytest.fixture
def spread(setting: Setting) -> Setting:
    tuning = FineTuning(epochs=2, learning_rate=1e-3)
    return replace(setting, strengths={NAME: STRENGTHS}, repeats=3, tuning=tuning, rule=BalancedRule(budget=1.0))


@pytest.fixture
def trained(done: tuple[list[Row], Experiment], monkeypatch: pytest.MonkeyPatch) -> list[list[float]]:
    """Let two heads at most be trained together; return the strengths of every training."""
    size = 4 * sum(parameter.numel() for parameter in done[1].workspace.cut.head_parameters().values())
    monkeypatch.setattr(head_loop, "_STACKED_BYTES", 2 * size)
    seen: list[list[float]] = []
    train = latent.train_heads

    def noted(cut: Any, features: Any, objective: Any, strengths: list[float], *rest: Any, **more: Any) -> Any:
        seen.append(list(strengths))
        return train(cut, features, objective, strengths, *rest, **more)

    monkeypatch.setattr(latent, "train_heads", noted)
    return seen


def outcome(one: Experiment) -> tuple[list[Row], dict[str, Any], bytes]:
    """Return all that a method leaves: scores, choice and weights."""
    rows, choice = one.rows_for(one.plain(NAME)), one.selection(one.plain(NAME))
    return rows, choice, (one.run.path / "corrected" / f"{NAME}.safetensors").read_bytes()


def test_tasks_in_any_order_give_what_one_run_gives(
    spread: Setting, done: tuple[list[Row], Experiment], trained: list[list[float]], tmp_path: Path
) -> None:
    with opened(spread, tmp_path / "alone", done[1].workspace.cache) as one:
        expected = outcome(one)
    chosen = expected[1]["strength"]
    assert expected[1]["diverged"] == [1e30]
    assert trained == [list(STRENGTHS), [chosen], [chosen]]
    trained.clear()
    with opened(spread, tmp_path / "apart", done[1].workspace.cache) as one:
        assert one.plan_tasks(NAME) == [APART, [Task(NAME)], SEEDS]
        for task in (*reversed(APART), Task(NAME), *reversed(SEEDS)):
            Experiment(spread, one.run, cache=done[1].workspace.cache).run_task(task)  # each on a machine of its own
        groups = [[0.1, 1.0], [10.0, 100.0], [1e30]]
        (again,) = (group for group in groups if chosen in group)
        assert trained == [*reversed(groups), again, [chosen], [chosen]]
        assert one.plan_tasks(NAME) == []
        assert outcome(one) == expected
    with opened(spread, tmp_path / "some", done[1].workspace.cache) as one:
        one.run_task(APART[1])
        assert one.plan_tasks(NAME)[0] == [APART[0], APART[2]]
        trained.clear()
        assert outcome(one) == expected
    assert trained[0] == [0.1, 1.0, 1e30], "what is left is trained by the method itself"


def test_groups_of_another_size_are_not_taken(
    spread: Setting,
    done: tuple[list[Row], Experiment],
    trained: list[list[float]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with opened(spread, tmp_path / "run", done[1].workspace.cache) as one:
        one.run_task(APART[0])
        monkeypatch.setattr(head_loop, "_STACKED_BYTES", 2**30)
        assert one.plan_tasks(NAME) == [[Task(NAME)], SEEDS], "small heads are trained together"
        one.run_task(Task(NAME))
    assert trained[-1] == list(STRENGTHS)
