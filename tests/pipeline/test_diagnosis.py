"""Directions from pairs, their diagnostics, and inserted against natural artifacts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from hansfree._internal.hashing import seeded
from hansfree.activations import collect_activations
from hansfree.cavs import PairCAV
from hansfree.cavs.diagnostics import quick_check
from hansfree.corrections import LatentCorrection, Need
from hansfree.corrections.training import FineTuning
from hansfree.errors import OptionError
from hansfree.models import build_model
from hansfree.pipeline.diagnosis import Depth, InsertionSimilarity, compare_insertion, measure_depth
from hansfree.pipeline.experiment import Experiment
from hansfree.pipeline.workspace import Setting
from hansfree.report.advice import describe_similarity
from hansfree.report.direction import describe_depth
from tests.pipeline.worlds import opened, stamped


def setting_of(cav: str) -> Setting:
    with seeded(0):
        model = build_model("demo", classes=2).eval()
    data, tuning, strengths = stamped(80, 60, 60), FineTuning(epochs=1), {"rr-clarc": (1.0,)}
    return Setting(
        name="tiny", data=data, model=model, layer="features.10", tuning=tuning, cav=cav, strengths=strengths
    )


@pytest.fixture(scope="module")
def signal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Experiment]:
    with opened(setting_of("signal"), tmp_path_factory.mktemp("signal") / "run") as experiment:
        yield experiment


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Experiment]:
    with opened(setting_of("pair"), tmp_path_factory.mktemp("pair") / "run") as experiment:
        yield experiment


def test_pairs_of_training_images_give_the_direction_and_its_row(pair: Experiment) -> None:
    setting = pair.setting
    quality = {row.metric: row.value for row in pair.cav_rows() if row.method == "cav:pair"}
    assert {row.cav for row in pair.rows_for(pair.plain("rr-clarc"))} == {"pair"}
    assert quality["alignment_mean"] > 0.9
    assert setting.data.pairs is not None
    clean, biased = (collect_activations(setting.model, setting.layer, images).pooled for images in setting.data.pairs)
    assert len(clean) == int((~setting.data.train.has_artifact).sum())
    expected = PairCAV().fit_pairs(clean, biased)
    np.testing.assert_allclose(pair.workspace.cav.directions_, expected.directions_, atol=1e-4)


def test_data_without_pairs_are_refused_before_any_work(signal: Experiment) -> None:
    with pytest.raises(OptionError, match=r"Set artifact\.insert") as error:
        replace(signal.setting, cav="pair", data=replace(signal.setting.data, train_biased=None))
    using = [name for name, member in LatentCorrection.members().items() if Need.PAIRS in member.info.needs]
    assert len(using) >= 2
    assert str(error.value).endswith(f"('pair' as a CAV; {', '.join(map(repr, using))} as a method).")


def test_cosine_and_size_are_those_of_the_two_mean_changes(signal: Experiment) -> None:
    signal.cav_rows()
    found, activations = compare_insertion(signal), signal.workspace.activations
    train, bits = activations["train"], np.asarray(activations["train"].has_artifact)
    inside = train.labels == signal.setting.data.biased_class
    pooled = train.pooled.astype(np.float64)
    natural = pooled[inside & bits].mean(axis=0) - pooled[inside & ~bits].mean(axis=0)
    biased, clean = (activations[name].pooled.astype(np.float64).mean(axis=0) for name in ("val_biased", "val_clean"))
    change = biased - clean
    cosine = change @ natural / np.linalg.norm(change) / np.linalg.norm(natural)
    assert found.cosine == pytest.approx(cosine, rel=1e-4)
    assert found.size == pytest.approx(change @ natural / (natural @ natural), rel=1e-4)
    assert (found.n_inserted, found.n_labelled) == (len(activations["val_clean"]), int((inside & bits).sum()))


@pytest.mark.parametrize(
    ("cosine", "attainable", "differs", "words"),
    [
        (0.9, 0.95, False, "with a cosine of 0.90"),
        (0.3, 0.95, True, "the two differ"),
        (0.3, 0.4, False, "about 0.40"),
        (0.0, 0.2, False, "n/a"),
    ],
)
def test_noise_is_not_called_unlike(cosine: float, attainable: float, differs: bool, words: str) -> None:
    found = InsertionSimilarity(cosine=cosine, attainable=attainable, size=1.0, n_inserted=9, n_labelled=7)
    assert found.differs == differs
    assert words in describe_similarity(found)


def test_the_depth_of_the_artifact_takes_one_pass_and_is_stored(
    signal: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, train = signal.setting.model, signal.setting.data.train
    signal.workspace.cut  # noqa: B018 (traced without the hook)
    passed: list[int] = []
    handle = model.register_forward_pre_hook(lambda _module, inputs: passed.append(len(inputs[0])))
    found = measure_depth(signal)
    handle.remove()
    assert found is not None
    inside = np.flatnonzero(train.labels == 0)
    assert found.n_images == len(inside)
    assert passed[-1] == len(inside)
    assert set(passed[:-1]) == {2}  # two images find the stages
    assert found.n_frozen == len(found.stages) == 4
    pooled = collect_activations(model, found.stages[1], train, pooling="mean").pooled[inside]
    expected = quick_check(pooled, train.has_artifact[inside], cav="signal", seed=0).auc
    assert found.aucs[1] == pytest.approx(expected, abs=1e-3)
    monkeypatch.setattr("hansfree.pipeline.diagnosis.collect_pooled", None)
    assert measure_depth(signal) == found


def test_a_network_without_stages_is_no_error(signal: Experiment, tmp_path: Path) -> None:
    flat = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    with opened(replace(signal.setting, model=flat, layer="1"), tmp_path / "run") as experiment:
        assert measure_depth(experiment) is measure_depth(experiment) is None


@pytest.mark.parametrize(
    ("is_visible", "n_frozen", "words"),
    [
        ([True, True, True], 3, "first shows in stage 1 of 3 (held-out AUC 0.97, 0.60, 0.99; 40 training images"),
        ([True, True, True], 3, "speaks for a correction of the whole network."),
        ([False, True, True], 3, "first shows in stage 2 of 3"),
        ([False, False, True], 3, "a correction of the head can reach it."),
        ([True, True, True], 1, "a correction of the head can reach it."),
        ([False, False, False], 3, "shows in none of 3 stages"),
    ],
)
def test_what_lies_below_the_head_speaks_for_the_whole_network(
    is_visible: list[bool], n_frozen: int, words: str
) -> None:
    depth = Depth(["a", "b", "c"], [0.97, 0.6, 0.99], is_visible, n_frozen, 40)
    assert words in describe_depth(depth)
