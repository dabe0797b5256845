"""A natural artifact, which cannot be inserted and has no known place, with many and with few held-out images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from hansfree.corrections import LatentCorrection
from hansfree.corrections.selection import BalancedRule, DerivativeRule
from hansfree.corrections.training import FineTuning
from hansfree.data.biased import BiasedData
from hansfree.data.datasets import WithMasks
from hansfree.errors import SplitError
from hansfree.evaluation.results import Row, load_results
from hansfree.models import architecture_named, build_model
from hansfree.pipeline.experiment import Experiment
from hansfree.pipeline.outcome import gather_results, write_outcome
from hansfree.pipeline.workspace import Setting
from hansfree.report import write_report
from tests.pipeline.studies import Scenes, natural_data, rows_like
from tests.pipeline.worlds import opened

METHODS = LatentCorrection.defaults()
LAYER = architecture_named("demo").layer


def poor(*, biased: int) -> BiasedData:
    """Return plasters in one class only: half of its training images, and so many of validation and test each."""
    scenes = Scenes(300, size=32, classes=2)
    in_class = np.flatnonzero(scenes.labels == 0)
    has = np.zeros(300, dtype=bool)
    for first, last, count in ((0, 120, 25), (120, 210, biased), (210, 300, biased)):
        has[in_class[(in_class >= first) & (in_class < last)][:count]] = True
    scenes.has_plaster = has
    return natural_data(scenes, 120, 210)


def rich() -> BiasedData:
    """Return plasters in half of one class's training images, and in half of all others."""
    scenes = Scenes(400, size=32, classes=2)
    share = np.where(np.arange(400) < 120, np.where(scenes.labels == 0, 0.5, 0.0), 0.5)
    scenes.has_plaster = np.random.default_rng(0).random(400) < share
    return natural_data(scenes, 120, 260)


def setting_of(data: BiasedData, **options: Any) -> Setting:
    given = {"model": build_model("demo", classes=2).eval(), "layer": LAYER, **options}
    strengths = {"rr-clarc": (0.1, 1e4), "rrr": (0.1,)}
    return Setting(name="natural", data=data, tuning=FineTuning(epochs=1), strengths=strengths, **given)


@pytest.fixture(scope="module", params=[0, 7], ids=["none", "seven"])
def few(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with opened(setting_of(poor(biased=request.param)), tmp_path_factory.mktemp("few") / "run") as experiment:
        yield experiment, experiment.rows(METHODS)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with opened(setting_of(rich()), tmp_path_factory.mktemp("many") / "run") as experiment:
        yield experiment, experiment.rows(METHODS)


# Enough images


def test_rrr_is_trained_with_masks_of_the_cav_and_not_scored_by_such(many: tuple[Experiment, list[Row]]) -> None:
    experiment, rows = many
    scored = {row.method for row in rows_like(rows, metric="artifact_relevance")}
    assert scored == {"original", "vanilla"}, "RRR knows these masks, and the others the CAV that they come from"
    images, train = experiment.workspace.masked_train, experiment.setting.data.train
    assert isinstance(images, WithMasks)
    for index in range(0, len(train), 7):
        image, mask = images.pixels(index)
        assert np.array_equal(image, train.pixels(index)[0])
        assert mask.any() == train.has_artifact[index]
        assert not train.pixels(index)[1].any(), "its place is unknown"
    assert vars(experiment.path(experiment.plain("rrr")).method)["images"] is images


# No counter-examples, or no held-out image with the artifact at all


def test_the_derivative_is_measured_on_all_validation_images(few: tuple[Experiment, list[Row]]) -> None:
    """By hand, in the whole model: the log-odds with the artifact's shift added at the layer."""
    workspace, setting = few[0].workspace, few[0].setting
    data = setting.data
    images = torch.cat(
        [part.batch(np.arange(len(part))).image for part in (data.val_clean, data.val_biased) if len(part)]
    )
    shift = torch.from_numpy(workspace.cav.scale_ @ workspace.cav.directions_).double()[:, None, None]
    model = build_model("demo", classes=2).double().eval()
    module = model.get_submodule(setting.layer)

    def odds(step: float) -> torch.Tensor:
        handle = module.register_forward_hook(lambda _m, _a, output: output + step * shift)
        with torch.no_grad():
            logits = model(images.double())
        handle.remove()
        return logits[:, 0] - logits[:, 1]

    expected = ((odds(1e-6) - odds(-1e-6)) / 2e-6).abs().mean()
    assert workspace.original_validation.derivative == pytest.approx(float(expected), rel=1e-3)


def test_the_outcome_is_read_and_reported_without_any_image_to_show(few: tuple[Experiment, list[Row]]) -> None:
    experiment, rows = few
    paired = {each.metric for each in experiment.predictions.paired(METHODS)}
    assert paired == {"accuracy_clean", "balanced_accuracy_clean"}
    write_outcome(experiment, rows, gather_results(experiment, METHODS, rows), {})
    folder, n = experiment.run.path, len(experiment.setting.data.test_biased)
    assert (folder / "heatmaps.npz").exists() == (n > 0)
    results = load_results(folder)
    assert (results.heatmaps is not None) == (n > 0)
    assert len(experiment.predictions.shown(METHODS).get("images", ())) == min(n, 6)
    assert results.verdicts.keys() == results.selection.keys()
    assert {each.level.value for each in results.verdicts.values()} <= {"unknown", "unusable"}
    assert ('<div class="before-after">' in write_report(folder).read_text(encoding="utf-8")) == (n > 0)


def test_a_rule_that_the_data_cannot_feed_is_replaced_and_its_budget_kept() -> None:
    replaced = setting_of(poor(biased=7), rule=BalancedRule(0.05, {1: 0.1}))
    assert replaced.rule == DerivativeRule(0.05, {1: 0.1})
    assert setting_of(rich(), rule=BalancedRule(0.05)).rule == BalancedRule(0.05)
    assert setting_of(rich(), rule=DerivativeRule()).rule == DerivativeRule()


def test_a_model_too_broken_for_lrp_has_no_heatmap(
    many: tuple[Experiment, list[Row]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise SplitError("The canonical form does not give the model's logits.")

    monkeypatch.setattr("hansfree.evaluation.canonical.canonical_form", refuse)
    experiment = many[0]
    assert experiment.workspace.explanation == "lrp"
    assert np.isnan(experiment.workspace.heatmaps(experiment.setting.model, np.arange(2))).all()
