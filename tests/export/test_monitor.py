"""The monitor keeps the rate of false alarms that was asked for, on a model's activations and on a finished run."""

from __future__ import annotations

import copy
import csv
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sklearn.base import clone
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from hansfree.activations import Activations, collect_activations
from hansfree.cavs import CAV, SVMCAV, SignalCAV, load_cavs
from hansfree.corrections import PClArC
from hansfree.corrections.training import FineTuning
from hansfree.errors import CacheError, DataError, OptionError, RunError
from hansfree.export.monitor import Monitor, MonitorClassifier, Rate, _threshold, monitor_run
from hansfree.reasons import Advice, AdviceCode
from tests.conftest import Call
from tests.corrections.examples import CASES, TinyImages, collect, fit_cav
from tests.pipeline.user import build, draw, make_user, prepare, run_unreported

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
    content = bytearray((tmp_path / "monitor.safetensors").read_bytes())
    content[-9] ^= 4
    (tmp_path / "monitor.safetensors").write_bytes(content)
    with pytest.raises(RunError, match="is damaged"):
        Monitor.load(tmp_path / "monitor.safetensors", MODEL)


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


RATE = 0.05


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user with a finished run, and new pictures, four of each kind; tests do not change it."""
    user = make_user(tmp_path_factory.mktemp("watched") / "user")
    run_unreported(user / "run.yaml", correction={"methods": ["vanilla"], "epochs": 1, "strengths": {}})
    rng = np.random.default_rng(7)
    (user / "new").mkdir()
    for kind in ("with", "without"):
        for number in range(4):
            Image.fromarray(draw(number % 2, kind == "with", rng)).save(user / "new" / f"{kind}-{number}.png")
    return user


def new_images(user: Path) -> Tensor:
    """Return the new pictures as the model sees them."""
    pictures = [np.asarray(Image.open(path)).astype(np.float32) for path in sorted((user / "new").iterdir())]
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2) / 127.5 - 1


def test_the_scores_are_those_of_the_runs_direction_on_the_models_input(finished: Path) -> None:
    fitted = monitor_run(finished / "run", false_fire_rate=RATE)
    looked, skipped = fitted.score_images([finished / "new"])
    assert skipped == []
    assert [Path(one.image).name for one in looked] == sorted(os.listdir(finished / "new"))
    model = build()
    model.load_state_dict(fitted.prepared.setting.model.state_dict())
    images = new_images(finished)
    pooled = model.eval()[:3](images).amax((2, 3)).detach().numpy()  # `layer: auto` is the second convolution
    expected = load_cavs(finished / "run" / "cavs.safetensors")["signal"].decision_function(pooled)
    np.testing.assert_allclose([one.score for one in looked], expected, rtol=1e-4, atol=1e-4)
    assert [one.is_flagged for one in looked] == (expected > fitted.monitor.threshold).tolist()
    assert fitted.monitor.hits is not None
    assert fitted.monitor.hits.n == 52
    assert fitted.monitor.hits.value > fitted.monitor.false_fires.value + 0.3
    again = Monitor.load(fitted.file, model)
    np.testing.assert_allclose(again.scores(images), expected, rtol=1e-4, atol=1e-4)


def test_on_the_command_line(call: Call, finished: Path, tmp_path: Path) -> None:
    first = finished / "new" / "with-0.png"
    code, out, err = call("monitor", finished / "run", first, finished / "new", "--false-fire-rate", RATE)
    assert code == 0, err
    rows = list(csv.DictReader(out.splitlines()))
    assert [row["image"] for row in rows[:2]] == [str(first), str(first)]
    assert len(rows) == 9
    flagged = sum(row["flagged"] == "1" for row in rows)
    assert f"{flagged} of 9 images are flagged." in err
    assert "Set on 52 clean images to flag at most 5.0% of such." in err
    table = tmp_path / "flags.csv"
    words = ("monitor", finished / "run", finished / "new", "--false-fire-rate", RATE, "--out", table)
    assert call(*words)[:2] == (0, f"table: {table}\n")
    assert len(table.read_text().splitlines()) == 9
    code, _, err = call(*words)
    assert (code, "exists already" in err) == (1, True)
    code, _, err = call("monitor", finished / "run", finished / "new")
    assert (code, "52 clean images cannot set a threshold" in err) == (1, True)


def test_what_is_no_finished_run_or_another_one_is_refused(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not the folder of a finished"):
        monitor_run(tmp_path)
    moved = Path(shutil.copytree(finished, tmp_path / "user"))
    (moved / "run" / "run.yaml").write_text((moved / "run" / "run.yaml").read_text().replace(str(finished), str(moved)))
    assert monitor_run(moved / "run", false_fire_rate=RATE).file == moved / "run" / "monitor.safetensors"
    content = bytearray((moved / "run" / "original.safetensors").read_bytes())
    content[-9] ^= 4
    (moved / "run" / "original.safetensors").write_bytes(content)
    with pytest.raises(RunError, match=r"original\.safetensors is damaged"):
        monitor_run(moved / "run", false_fire_rate=RATE)
    shutil.copy2(finished / "run" / "original.safetensors", moved / "run")
    os.utime(moved / "images" / "val-0-0-0.png", (1, 1))  # a picture that changed
    with pytest.raises(RunError, match="holds another run"):
        monitor_run(moved / "run", false_fire_rate=RATE)


def test_the_monitor_of_a_whole_network_is_fitted_to_that_network(
    finished: Path, tmp_path: Path, call: Call, unreported: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = Path(shutil.copytree(finished, tmp_path / "user", ignore=shutil.ignore_patterns("run")))
    correction = {"methods": ["match"], "strengths": {"match": [0.3]}, "network": {"epochs": 2}}
    recommended = Advice(AdviceCode.RECOMMENDED, best="match", scores={"match": 0.9})
    monkeypatch.setattr("hansfree.api.advise", lambda *_: (recommended, ""))
    sections = {"correction": correction, "artifact": {"insert": "patch", "file": "sticker.png"}}
    run_unreported(user / "deep.yaml", **sections)
    code, out, err = call("monitor", user / "run", user / "new", "--false-fire-rate", RATE)
    assert code == 0, err
    assert "for the network corrected by match alone" in err
    assert "after match" in err  # passed through the corrected network
    corrected = build()
    corrected.load_state_dict(load_file(user / "run" / "corrected" / "match.safetensors"))
    monitor = Monitor.load(user / "run" / "monitor.safetensors", corrected.eval())
    data = prepare(user / "deep.yaml", **sections).setting.data
    dark = np.flatnonzero(data.train.labels == data.biased_class)
    train = collect_activations(corrected, monitor.layer, data.train)
    assert train.has_artifact is not None
    own = SignalCAV().fit(train.pooled[dark], train.has_artifact[dark])
    np.testing.assert_allclose(monitor.cav.directions_, own.directions_, atol=1e-5)
    scores = [float(row["score"]) for row in csv.DictReader(out.splitlines())]
    np.testing.assert_allclose(scores, monitor.scores(new_images(user)), rtol=1e-4, atol=1e-4)
    original = build()
    original.load_state_dict(load_file(user / "two.safetensors"))
    with pytest.raises(CacheError, match="another model"):
        Monitor.load(user / "run" / "monitor.safetensors", original)
    assert not list((user / "run").glob(".network-*"))
    with monkeypatch.context() as blind:  # a network that no longer shows the artifact
        blind.setattr(Monitor, "is_usable", False)
        code, _, err = call("monitor", user / "run", user / "new", "--false-fire-rate", RATE)
    assert (code, "the network corrected by match no longer shows the artifact" in " ".join(err.split())) == (0, True)
    assert Monitor.load(user / "run" / "monitor.safetensors", original.eval()).layer == monitor.layer
    weights = user / "run" / "corrected" / "match.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-9] + bytes([whole[-9] ^ 4]) + whole[-8:])
    code, _, err = call("monitor", user / "run", user / "new")
    assert (code, "match.safetensors is damaged" in err.replace("\n", "")) == (1, True)
    weights.unlink()
    code, _, err = call("monitor", user / "run", user / "new")
    assert (code, "match.safetensors is missing or damaged" in err.replace("\n", "")) == (1, True)


def test_plain_datasets_serve_as_their_activations_do() -> None:
    def plain(images: TinyImages) -> list[tuple[Tensor, int, bool]]:
        return [(each.image, int(each.label), bool(each.has_artifact)) for each in map(images.__getitem__, range(150))]

    clean, test_clean = (plain(held_out("none", first)[0]) for first in (1000, 2000))
    given = {"clean": clean, "test_clean": test_clean, "false_fire_rate": 0.1}
    with pytest.raises(OptionError, match="layer="):
        Monitor.fit(MODEL, CAV_, **given)
    found = Monitor.fit(MODEL, CAV_, **given, layer=CASE.layer)
    assert found.threshold == pytest.approx(make().threshold)
    assert found.false_fires == make().false_fires
    np.testing.assert_array_equal(found.flags(test_clean), found.flags(torch.stack([each[0] for each in test_clean])))


def test_a_classifier_keeps_the_rate_in_a_pipeline_of_scikit_learn() -> None:
    rng, y = np.random.default_rng(0), np.repeat(["clean", "ruler"], [2000, 200])
    X = rng.normal(size=(2200, 6)) + 4 * (y == "ruler")[:, None] * np.eye(6)[0]
    steps = make_pipeline(StandardScaler(), MonitorClassifier(SVMCAV(), false_fire_rate=0.05))
    flagged = cross_val_predict(clone(steps), X, y, cv=3) == "ruler"
    assert flagged[y == "clean"].mean() == pytest.approx(0.05, abs=0.02)
    assert flagged[y == "ruler"].mean() > 0.9
    with pytest.raises(OptionError, match="false_fire_rate"):
        MonitorClassifier(false_fire_rate=1.0).fit(X, y)
