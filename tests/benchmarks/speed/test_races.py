"""Every race runs on the demo's network and finds what it promises; how long it takes is nobody's test."""

from __future__ import annotations

import itertools
import json
import mmap
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from benchmarks.speed.ours import walk
from benchmarks.speed.peak import correct, peak_of
from benchmarks.speed.races.growth import _slopes
from benchmarks.speed.races.lrp import zennit_heatmaps
from benchmarks.speed.races.memory import STATUS
from benchmarks.speed.subject import Subject

from benchmarks.speed import TRIAL, Race, Sizes, timing
from hansfree._internal.progress import silent
from hansfree.corrections import RRClArC
from hansfree.corrections.training import TrainedHead
from hansfree.errors import HansfreeError, OptionError
from hansfree.heatmaps import compute_heatmaps
from hansfree.selection import Choice

ONCE = replace(TRIAL, turns=1)
FOUND = {
    "path": {"demo.one_over_paper", "demo.path_over_paper", "demo.paper_seconds_per_image"},
    "floor": {"demo.path_over_forward", "demo.path_over_forward_jpeg", "demo.jpeg_images_per_second"},
    "step": {"demo.rr_step_over_vanilla_step"},
    "rrr": {
        "demo.rrr_over_paper",
        "demo.rrr_grid_over_paper",
        "demo.rrr_grid_seconds_per_image",
        "demo.rrr_everywhere_over_paper",
        "demo.rrr_grid_everywhere_over_paper",
    },
    "lrp": {"demo.heatmaps_over_zennit", "demo.heatmaps_per_second"},
    "cache": {
        "demo.cache_speed_over_forward",
        "demo.forward_images_per_second",
        "demo.cache_images_per_second",
        "demo.cache_bytes_per_image",
        "demo.features_bytes_per_image",
    },
    "growth": {
        "demo.growth_images",
        "demo.growth_classes",
        "demo.growth_strengths",
        "demo.strength_over_pass",
        "demo.head_seconds_per_image",
    },
    "cav": {f"cav.{name}_over_gridsearch" for name in ("svm", "ridge", "lasso", "logistic")},
    "memory": {
        "memory_200_over_100",
        "memory_400_over_100",
        "memory_peak_100",
        "memory_peak_200",
        "memory_peak_400",
    },
}


@pytest.fixture(scope="module")
def subject():
    return Subject(ONCE, "demo")


def test_every_race_is_here():
    assert FOUND.keys() == Race.members().keys()


@pytest.mark.parametrize("name", [name for name in FOUND if name != "memory"])
def test_a_race_finds_what_it_promises(name, subject):
    outcome = Race.named(name)().measure(subject, silent)
    assert {measure.name for measure in outcome.measures} == FOUND[name]
    assert all(np.isfinite(measure.samples).all() for measure in outcome.measures)
    assert all(measure.low > 0 for measure in outcome.measures if measure.unit in ("images/s", "seconds", "bytes"))
    json.dumps(outcome.facts)


def test_bytes_per_image_are_those_of_the_layer_and_of_the_heads_input(subject):
    found = {measure.name: measure.value for measure in Race.named("cache")().measure(subject, silent).measures}
    at_layer, at_head = 4 * 128 * 2 * 2, 4 * 512 * 2  # float32; a value and a tangent
    assert at_layer < found["demo.cache_bytes_per_image"] < 2 * at_layer  # pooled channels, labels, ids
    assert at_head <= found["demo.features_bytes_per_image"] < 1.1 * at_head


def test_zennit_and_we_draw_the_same_heatmaps(subject):
    images = subject.images.train.batch(range(3)).image
    torch.testing.assert_close(
        zennit_heatmaps(subject, images), compute_heatmaps(subject.model, images, 0), rtol=1e-3, atol=1e-5
    )


def test_growth_is_the_slope_of_the_logarithms():
    seconds = {f"images {n}": (3 * n, 2 * n**0.5) for n in (4, 8, 16)}
    assert _slopes(seconds, "images", (4, 8, 16)) == pytest.approx((1.0, 0.5))


def test_a_path_is_multiplied_up_by_strengths_and_epochs(subject, monkeypatch):
    # The clock is read at the start, before and after the pass, when all is prepared, at the first step, before and
    # after the validation of each of the 4 epochs, when all are trained, and when the chosen one's weights are there.
    monkeypatch.setattr(timing, "clock", itertools.count(1).__next__)
    found = walk(subject.model, subject.layer, subject.images, subject.tuning, epochs_timed=4)
    passing, preparing, once, once_per_head, epoch = 2, 1, 2, 1, 2
    assert (found.passing, found.preparing) == (passing, preparing)
    assert found.seconds == passing + preparing + once + len(RRClArC.grid) * (once_per_head + 10 * epoch)
    assert found.one == passing + preparing + once + once_per_head + 10 * epoch


def test_a_large_head_gets_one_batch_and_says_what_was_multiplied_up(monkeypatch):
    monkeypatch.setattr("benchmarks.speed.subject._LARGE_HEAD", 100)
    large = Subject(ONCE, "demo")
    assert len(large.images.train) == ONCE.batch
    assert not Race.named("growth")().takes(large)
    outcome = Race.named("path")().measure(large, silent)
    of_large = {"plain_path_over_paper", "head_seconds_per_image", "plain_head_seconds_per_image"}
    assert {measure.name for measure in outcome.measures} == FOUND["path"] | {f"demo.{name}" for name in of_large}
    assert all(np.isfinite(measure.samples).all() for measure in outcome.measures)
    assert (outcome.facts["our_strengths_timed"], outcome.facts["our_epochs_timed"]) == (1, 3)
    assert (large.times, outcome.facts["images"]) == (4, 4 * ONCE.batch)
    assert outcome.facts["paper_steps"] == 4 * 10 * 22
    assert "multiplied up from 3 epochs of one strength" in outcome.notes[0]


def test_a_path_on_more_images_repeats_those_that_there_are(subject, monkeypatch):
    monkeypatch.setattr(timing, "clock", itertools.count(1).__next__)
    seen = []
    head = TrainedHead(1.0, dict, is_finite=True, history=(None,))
    monkeypatch.setattr(
        "benchmarks.speed.ours.train_heads", lambda cut, features, *rest, **more: seen.append(features) or [head]
    )
    monkeypatch.setattr("benchmarks.speed.ours.BalancedRule.choose", lambda self, *given: Choice(0, "the only one"))
    found = walk(subject.model, subject.layer, subject.images, subject.tuning, times=3)
    assert found.passing == 1 + 3
    assert len(seen[0]) == 3 * len(subject.images.train)
    (values,), (tangents,) = seen[0].values, seen[0].tangents
    assert len(values) == len(tangents) == len(seen[0])
    assert len(np.unique(values, axis=0)) == len(seen[0])


@pytest.mark.parametrize("name", ["floor", "step", "rrr", "lrp", "cache"])
def test_the_other_races_take_a_large_head_too(name, monkeypatch):
    monkeypatch.setattr("benchmarks.speed.subject._LARGE_HEAD", 100)
    outcome = Race.named(name)().measure(Subject(ONCE, "demo"), silent)
    assert {measure.name for measure in outcome.measures} == FOUND[name]
    assert not any(measure.name.startswith("demo.path") and measure.target for measure in outcome.measures)


def test_files_hold_the_images_in_their_order(subject, tmp_path):
    files = subject.images.as_files(tmp_path)
    assert len(files) == len(subject.images)
    for part in ("train", "clean", "biased"):
        read, kept = getattr(files, part), getattr(subject.images, part)
        assert np.array_equal(read.has_artifact, kept.has_artifact)
        assert np.array_equal(read.labels, kept.labels)
        assert np.abs(read.pixels(3)[0].astype(int) - kept.pixels(3)[0]).mean() < 12  # JPEG is not exact


@pytest.mark.skipif(not STATUS.exists(), reason="reads RssAnon, which only Linux tells")
def test_the_peak_is_seen_though_the_memory_is_given_back():
    def take() -> None:
        # from the system, as the heap may have room for an array
        with mmap.mmap(-1, 40_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
            held.write(b"x" * 40_000_000)
            time.sleep(0.5)  # time for the watch to look at it, on a busy machine too

    assert peak_of(take) - peak_of(lambda: None) > 20_000_000


def test_what_memory_is_measured_on_runs(tmp_path):
    correct(70, tmp_path)
    assert len(list(tmp_path.rglob("shard-*"))) == 2  # training and validation images


def test_memory_takes_a_process_per_number_and_divides_by_the_fewest(subject, monkeypatch):
    asked = []

    def run(command, **options):
        asked.append(int(command[-2]))
        with open(command[-1], "w") as file:
            json.dump(1000 + asked[-1], file)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr("subprocess.run", run)
    outcome = Race.named("memory")().measure(subject, silent)
    assert asked == [100, 200, 400]
    assert {measure.name for measure in outcome.measures} == FOUND["memory"]
    assert outcome.measures[1].samples == (1400 / 1100,)


def test_a_process_that_fails_is_told(subject, monkeypatch):
    failed = SimpleNamespace(returncode=1, stderr="Traceback\nMemoryError: too much")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: failed)
    with pytest.raises(HansfreeError, match="with 100 images failed: MemoryError: too much"):
        Race.named("memory")().measure(subject, silent)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"models": ("resnet8",)}, "Did you mean 'resnet18'"),
        ({"models": ()}, "needs a model"),
        ({"turns": 0}, "needs a model and a turn"),
        ({"images": 320, "batch": 64}, "multiple of four batches"),
        ({"images": 128, "batch": 64}, "multiple of four batches"),
    ],
)
def test_what_cannot_be_measured_is_refused(options, sentence):
    with pytest.raises(OptionError, match=sentence):
        Sizes(**options)
