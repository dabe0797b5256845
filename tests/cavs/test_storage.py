from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from hansfree.cavs import CAV, RidgeCAV, SignalCAV, base, load_cavs, save_cavs
from hansfree.errors import RunError, UnknownNameError
from tests.cavs.samples import activations


def fitted(labels=(False, True)):
    X, bits = activations()
    y = np.where(bits, labels[1], labels[0])
    return X, {name: member().fit(X, y) for name, member in CAV.members().items()}


@pytest.mark.parametrize("labels", [(False, True), ("clean", "ruler"), (3, 7)])
def test_round_trip_keeps_everything(tmp_path, labels):
    X, cavs = fitted(labels)
    save_cavs(tmp_path / "cavs.safetensors", cavs)
    loaded = load_cavs(tmp_path / "cavs.safetensors")
    assert list(loaded) == list(cavs)
    for name, cav in cavs.items():
        assert type(loaded[name]) is type(cav)
        assert loaded[name].get_params() == cav.get_params()
        assert vars(loaded[name]).keys() == vars(cav).keys()
        for attribute, value in vars(cav).items():
            restored = getattr(loaded[name], attribute)
            assert type(restored) is type(value)
            np.testing.assert_array_equal(restored, value)
        np.testing.assert_array_equal(loaded[name].predict(X), cav.predict(X))


def test_options_and_names_with_dots_survive(tmp_path):
    X, bits = activations()
    save_cavs(tmp_path / "c", {"layer4.1.ridge": RidgeCAV(folds=3, seed=9).fit(X, bits)})
    assert load_cavs(tmp_path / "c")["layer4.1.ridge"].get_params() == {"folds": 3, "seed": 9}


def test_a_loaded_signal_cav_goes_on_learning(tmp_path):
    X, bits = activations()
    save_cavs(tmp_path / "c", {"signal": SignalCAV().partial_fit(X[:20], bits[:20])})
    resumed = load_cavs(tmp_path / "c")["signal"].partial_fit(X[20:], bits[20:])
    np.testing.assert_allclose(resumed.directions_, SignalCAV().fit(X, bits).directions_)


def test_tensors_carry_readable_names(tmp_path):
    save_cavs(tmp_path / "c", fitted()[1])
    tensors = load_file(tmp_path / "c")
    assert tensors["signal.directions_"].shape == (1, 6)
    assert "svm.best_penalty_" in tensors


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    cavs = fitted()[1]
    path = tmp_path / "cavs.safetensors"
    save_cavs(path, cavs)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("hansfree._internal.files.os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save_cavs(path, {"signal": cavs["signal"]})
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["cavs.safetensors"]


def test_files_that_are_not_ours_are_errors(tmp_path):
    with pytest.raises(RunError, match="There is no file"):
        load_cavs(tmp_path / "missing")
    (tmp_path / "text").write_text("not a tensor")
    with pytest.raises(RunError, match="not a readable safetensors file"):
        load_cavs(tmp_path / "text")
    save_file({"weight": np.zeros(3)}, tmp_path / "weights")
    with pytest.raises(RunError, match="holds no CAVs"):
        load_cavs(tmp_path / "weights")


def test_damaged_files_are_errors(tmp_path):
    cav = fitted()[1]["signal"]
    tensors = {f"signal.{name}": value for name, value in cav.to_tensors().items()}

    def write(header, tensors):
        metadata = {"format": base.FORMAT, "cavs": json.dumps({"signal": header})}
        save_file(tensors, tmp_path / "c", metadata=metadata)

    write(cav.to_header(), {"signal.scale_": tensors["signal.scale_"]})
    with pytest.raises(RunError, match=r"damaged.*directions_"):
        load_cavs(tmp_path / "c")
    write(json.dumps({"name": "signal", "options": {"later": 1}, "words": {}}), tensors)
    with pytest.raises(RunError, match="another version"):
        load_cavs(tmp_path / "c")
    write(json.dumps({"name": "singal", "options": {}, "words": {}}), tensors)
    with pytest.raises(UnknownNameError, match="Did you mean 'signal'"):
        load_cavs(tmp_path / "c")
