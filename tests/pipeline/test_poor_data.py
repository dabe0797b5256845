"""Data that cannot tell: no counter-examples, or no held-out image with the artifact at all. The run says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hansfree._internal.store import open_run
from hansfree.corrections import LatentCorrection
from hansfree.corrections.selection import BalancedRule, DerivativeRule
from hansfree.corrections.training import FineTuning
from hansfree.data.biased import BiasedData
from hansfree.errors import SplitError
from hansfree.evaluation.results import Row, load_results
from hansfree.metrics import MIN_GROUP
from hansfree.models import architecture_named, build_model
from hansfree.pipeline.experiment import Experiment
from hansfree.pipeline.outcome import gather_results, write_outcome
from hansfree.pipeline.workspace import Setting
from hansfree.report import write_report
from tests.pipeline.studies import Natural, Scenes, natural_data, rows_like

TUNING = FineTuning(epochs=1)
STRENGTHS = {"rr-clarc": (0.1, 1e4), "rrr": (0.1,)}


def poor(*, biased: int) -> BiasedData:
    """Return plasters in one class only: half of its training images, and so many of validation and test each."""
    scenes = Scenes(300, size=32, classes=2)
    in_class = np.flatnonzero(scenes.labels == 0)
    has = np.zeros(300, dtype=bool)
    for first, last, count in ((0, 120, 25), (120, 210, biased), (210, 300, biased)):
        has[in_class[(in_class >= first) & (in_class < last)][:count]] = True
    scenes.has_plaster = has
    return natural_data(scenes, 120, 210)


def setting_of(data: BiasedData, **options: Any) -> Setting:
    given = {"model": build_model("demo", classes=2).eval(), "layer": architecture_named("demo").layer, **options}
    return Setting(name="poor", data=data, tuning=TUNING, strengths=STRENGTHS, **given)


@pytest.fixture(scope="module", params=[0, 7], ids=["none", "seven"])
def experiment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Experiment]:
    with open_run(tmp_path_factory.mktemp("poor") / "run", {"tiny": True}) as run:
        yield Experiment(setting_of(poor(biased=request.param)), run)


@pytest.fixture(scope="module")
def rows(experiment: Experiment) -> list[Row]:
    return experiment.rows()


def test_every_method_is_run_and_nothing_is_said_of_too_few_images(rows: list[Row], experiment: Experiment) -> None:
    assert {row.method for row in rows} == {"original", *LatentCorrection.defaults()}
    assert not [row for row in rows if row.metric.endswith("_biased") or row.metric == "cav_auc"]
    assert not rows_like(rows, metric="artifact_relevance")
    assert all(row.n >= MIN_GROUP for row in rows), "no score of a small group"
    everything = len(experiment.setting.data.test_clean) + len(experiment.setting.data.test_biased)
    assert {row.n for row in rows_like(rows, metric="tcav")} == {everything}


def test_the_strength_is_chosen_by_the_derivative_and_that_is_told(rows: list[Row], experiment: Experiment) -> None:
    assert type(experiment.setting.rule) is DerivativeRule
    told = experiment.selection(experiment.plain("rr-clarc"))
    assert "too few biased validation images to choose by accuracy" in told["rule"]
    assert "the log-odds" in told["reason"] or told["strength"] is None
    if told["strength"] is not None:
        assert told["derivative"]["chosen"] is not None
    assert told["derivative"]["original"] > 0


def test_the_derivative_is_measured_on_all_validation_images(rows: list[Row], experiment: Experiment) -> None:
    """By hand, in the whole model: the log-odds with the artifact's shift added at the layer."""
    workspace, setting = experiment.workspace, experiment.setting
    data = setting.data
    images = torch.cat(
        [part[row].image[None] for part in (data.val_clean, data.val_biased) for row in range(len(part))]
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


def test_what_is_kept_can_be_compared_and_shown(rows: list[Row], experiment: Experiment) -> None:
    assert {each.metric for each in experiment.predictions.paired()} == {"accuracy_clean", "balanced_accuracy_clean"}
    shown = experiment.predictions.shown()
    n = len(experiment.setting.data.test_biased)
    assert (shown == {}) == (n == 0)
    if n:
        assert len(shown["images"]) == len(shown["relevance/original"]) == min(n, 6)


def test_the_outcome_is_read_and_reported_without_any_image_to_show(rows: list[Row], experiment: Experiment) -> None:
    write_outcome(experiment, rows, gather_results(experiment, LatentCorrection.defaults(), rows), {})
    folder, is_shown = experiment.run.path, len(experiment.setting.data.test_biased) > 0
    assert (folder / "heatmaps.npz").exists() == is_shown
    results = load_results(folder)
    assert (results.heatmaps is not None) == is_shown
    assert results.verdicts.keys() == results.selection.keys()
    assert {each.level.value for each in results.verdicts.values()} <= {"unknown", "unusable"}
    assert ("Where the models look" in write_report(folder).read_text(encoding="utf-8")) == is_shown


def test_a_rule_that_the_data_cannot_feed_is_replaced_and_its_budget_kept() -> None:
    replaced = setting_of(poor(biased=7), rule=BalancedRule(0.05, {1: 0.1}))
    assert replaced.rule == DerivativeRule(0.05, {1: 0.1})
    assert setting_of(Natural().data("demo"), rule=BalancedRule(0.05)).rule == BalancedRule(0.05)
    assert setting_of(Natural().data("demo"), rule=DerivativeRule()).rule == DerivativeRule()


# Heatmaps, and where they are computed


class Untraceable(nn.Module):
    """The demo's model behind a look at the images."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = build_model("demo", classes=2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.inner(images if bool(images.isfinite().all()) else images.nan_to_num())  # type: ignore[no-any-return]


def test_the_explanation_is_told_and_the_same_for_all(experiment: Experiment, tmp_path: Path) -> None:
    assert experiment.explanation == "lrp"
    layer = f"inner.{experiment.setting.layer}"
    other = setting_of(poor(biased=7), model=Untraceable().eval(), layer=layer)
    with open_run(tmp_path / "run", {"tiny": True}) as run:
        untraceable = Experiment(other, run)
        assert untraceable.explanation == "gradient x input"
        untraceable.rows_for(untraceable.plain("p-clarc"))
        assert np.isfinite(untraceable.predictions.load("p-clarc")["relevance"]).all()


def test_a_model_too_broken_for_lrp_has_no_heatmap(experiment: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    if not len(experiment.setting.data.test_biased):
        pytest.skip("nothing to explain")

    def refuse(*_: object, **__: object) -> None:
        raise SplitError("The canonical form does not give the model's logits.")

    monkeypatch.setattr("hansfree.evaluation.canonical.canonical_form", refuse)
    assert np.isnan(experiment.workspace.pictures.heatmaps(experiment.setting.model, np.arange(2))).all()
