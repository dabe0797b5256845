"""The monitor keeps the rate of false alarms that was asked for, tells what it is worth, and survives a file."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from hansfree.activations import Activations
from hansfree.cavs import CAV, SignalCAV
from hansfree.corrections import PClArC
from hansfree.corrections.training import FineTuning
from hansfree.errors import CacheError, DataError, OptionError, RunError
from hansfree.export.monitor import Monitor, Rate, _threshold
from tests.corrections.examples import CASES, TinyImages, collect, fit_cav

CASE = CASES["convolution"]


MODEL = CASE.model()


def held_out(artifact: str, first: int, count: int = 150) -> tuple[TinyImages, Activations]:
    images = TinyImages(count, artifact=artifact, seed=first)  # type: ignore[arg-type]
    images.ids = images.ids + first
    return images, collect(CASE, MODEL, images)


CAV_, CLEAN = fit_cav(collect(CASE, MODEL, TinyImages(300))), held_out("none", 1000)[1]


TEST_CLEAN, TEST_BIASED = held_out("none", 2000), held_out("all", 2000)


def make(cav: CAV = CAV_, rate: float = 0.1) -> Monitor:
    return Monitor.fit(
        MODEL, cav, clean=CLEAN, test_clean=TEST_CLEAN[1], test_biased=TEST_BIASED[1], false_fire_rate=rate
    )


def test_flags_are_the_scores_above_the_threshold_and_the_rates_count_them() -> None:
    monitor = make()
    for (images, activations), rate in ((TEST_CLEAN, monitor.false_fires), (TEST_BIASED, monitor.hits)):
        flags = monitor.flags(images.images, batch_size=64)
        expected = CAV_.decision_function(activations.pooled)
        np.testing.assert_allclose(monitor.scores(images.images), expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(flags, expected > monitor.threshold)
        assert rate == Rate(int(flags.sum()), 150)
    assert monitor.hits is not None
    assert monitor.hits.value > monitor.false_fires.value + 0.3
    assert monitor.flags(torch.zeros(0, 3, 8, 8)).shape == (0,)
    assert monitor.describe().endswith(f"artifact found {monitor.hits}.")


def test_a_monitor_that_finds_no_more_than_it_falsely_flags_is_advised_against() -> None:
    """Turned around, the same direction flags clean images rather than those with the artifact."""
    turned = copy.deepcopy(CAV_)
    turned.directions_ = -turned.directions_
    monitor = make(turned)
    assert monitor.hits is not None
    assert monitor.hits.interval[0] <= monitor.false_fires.interval[1]
    assert "Do not use this monitor: " in monitor.describe()


@pytest.mark.parametrize(("n", "rate"), [(99, 0.01), (40, 0.1), (25, 0.2)])
def test_a_new_clean_image_is_flagged_as_often_as_was_asked(n: int, rate: float) -> None:
    """Over many draws of skewed scores, far from any normal curve."""
    rng = np.random.default_rng(0)
    fired = [float(rng.exponential() > _threshold(rng.exponential(size=n), rate)) for _ in range(20000)]
    error = np.sqrt(rate / len(fired))
    assert rate - 1 / (n + 1) - 4 * error < np.mean(fired) < rate + 4 * error


def test_rates_come_with_the_exact_interval() -> None:
    assert Rate(0, 20).interval == pytest.approx((0, 0.16843), abs=1e-4)  # from published tables
    assert Rate(5, 20).interval == pytest.approx((0.08657, 0.49105), abs=1e-4)
    assert Rate(20, 20).interval == pytest.approx((0.83157, 1), abs=1e-4)
    assert str(Rate(5, 20)) == "25.0% of 20 images (95 % interval 8.7% to 49.1%)"


def test_a_monitor_survives_a_file_and_serves_corrected_models(tmp_path: Path) -> None:
    monitor = make()
    monitor.save(tmp_path / "monitor.safetensors")
    train = collect(CASE, MODEL, TinyImages(30))
    corrected = PClArC(CAV_, tuning=FineTuning(epochs=1)).correct(MODEL, train)
    for model in (MODEL, corrected):
        again = Monitor.load(tmp_path / "monitor.safetensors", model)
        for name in ("threshold", "hits", "false_fires"):
            assert getattr(again, name) == getattr(monitor, name)
        assert again.describe() == monitor.describe()
        np.testing.assert_array_equal(again.flags(TEST_BIASED[0].images), monitor.flags(TEST_BIASED[0].images))
    with safe_open(tmp_path / "monitor.safetensors", framework="np") as file:
        assert json.loads(file.metadata()["monitor"])["asked"] == 0.1


def test_a_model_that_is_cut_by_hooks_needs_an_example(tmp_path: Path) -> None:
    case, data = CASES["hooks"], TinyImages(60, artifact="none")
    model = case.model()
    clean = collect(case, model, data)
    test = replace(clean, ids=clean.ids + 500)
    monitor = Monitor.fit(model, CAV_, clean=clean, test_clean=test, false_fire_rate=0.1)
    assert monitor.hits is None
    assert "unknown" in monitor.describe()
    monitor.save(tmp_path / "m.safetensors")
    again = Monitor.load(tmp_path / "m.safetensors", model, example=data.images[:2])
    np.testing.assert_array_equal(again.flags(data.images), monitor.flags(data.images))


def test_another_model_or_file_is_refused(tmp_path: Path) -> None:
    make().save(tmp_path / "monitor.safetensors")
    other = copy.deepcopy(MODEL)
    with torch.no_grad():
        other.features.weight += 0.1
    save_file({"x": torch.zeros(1)}, tmp_path / "weights.safetensors")
    for name, model, error, words in (
        ("monitor", other, CacheError, "another model"),
        ("nothing", MODEL, RunError, "no file"),
        ("weights", MODEL, RunError, "holds no monitor"),
    ):
        with pytest.raises(error, match=words):
            Monitor.load(tmp_path / f"{name}.safetensors", model)


@pytest.mark.parametrize(
    ("test_clean", "test_biased", "words"),
    [
        (CLEAN, None, "150 images set the threshold and test it"),
        # another batch may round otherwise
        (replace(CLEAN, pooled=CLEAN.pooled * np.float32(1 + 1e-6)), None, "150 images set the threshold and test it"),
        (TEST_BIASED[1], None, "150 of the 150 clean images have"),
        (TEST_CLEAN[1], CLEAN, "150 of the 150 biased images do not have"),
        (replace(TEST_CLEAN[1], pooling="mean"), None, "different layers"),
        (replace(TEST_CLEAN[1], trunk="another"), None, "different layers"),
    ],
)
def test_sets_that_would_tell_nothing_are_refused(
    test_clean: Activations, test_biased: Activations | None, words: str
) -> None:
    with pytest.raises(DataError, match=words):
        Monitor.fit(MODEL, CAV_, clean=CLEAN, test_clean=test_clean, test_biased=test_biased, false_fire_rate=0.1)


def test_options_that_cannot_be_met_are_refused() -> None:
    assert _threshold(np.arange(99.0), 0.01) == 98
    with pytest.raises(DataError, match="98 clean images cannot set a threshold for a false-fire rate of"):
        _threshold(np.arange(98.0), 0.01)
    with pytest.raises(DataError, match="at least 999 are needed"):
        make(rate=0.001)
    with pytest.raises(DataError, match="fitted on another layer"):
        make(SignalCAV().fit(CLEAN.pooled[:, :3], np.arange(len(CLEAN)) % 2))
    with pytest.raises(OptionError, match="false_fire_rate"):
        make(rate=1.0)
