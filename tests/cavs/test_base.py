"""Scikit-learn's own contract, for every CAV that is registered."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from hansfree.cavs import CAV, GivenCAV, SignalCAV, from_captum, join_cavs, load_cavs, save_cavs, to_captum
from hansfree.errors import DataError, RunError, UnknownNameError
from tests.cavs.samples import activations

MEMBERS = list(CAV.members().values())


def test_members_are_found_by_the_names_of_the_paper():
    assert set(CAV.from_marks()) == {"signal", "svm", "ridge", "lasso", "logistic"}
    with pytest.raises(UnknownNameError, match="Did you mean 'ridge'"):
        CAV.named("rigde")


@pytest.mark.parametrize("member", MEMBERS)
def test_fitted_attributes_mean_what_they_say(member):
    X, has_artifact = activations()
    cav = member().fit(X, has_artifact)
    scores = X @ cav.directions_.T
    assert cav.directions_.shape == (1, 6)
    np.testing.assert_allclose(cav.directions_ @ cav.directions_.T, [[1.0]], atol=1e-12)
    np.testing.assert_allclose(cav.clean_score_, scores[~has_artifact].mean(0))
    np.testing.assert_allclose(cav.artifact_score_, scores[has_artifact].mean(0))
    np.testing.assert_allclose(cav.scale_, cav.artifact_score_ - cav.clean_score_)
    assert cav.scale_ > 0
    np.testing.assert_allclose(cav.score_along(X), scores)
    np.testing.assert_allclose(cav.decision_function(X), scores[:, 0] + cav.intercept_)
    np.testing.assert_array_equal(cav.direction_, cav.directions_[0])
    assert cav.score(X, has_artifact) > 0.8


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("labels", [("clean", "ruler"), (-1, 1), (3, 7)])
def test_any_two_labels_and_the_larger_is_the_artifact(member, labels):
    X, has_artifact = activations()
    cav, reference = member().fit(X, np.where(has_artifact, labels[1], labels[0])), member().fit(X, has_artifact)
    np.testing.assert_array_equal(cav.directions_, reference.directions_)
    assert cav.classes_.tolist() == list(labels)
    np.testing.assert_array_equal(cav.predict(X) == labels[1], reference.predict(X))


@pytest.mark.parametrize("member", MEMBERS)
def test_fit_repeats_itself_and_leaves_the_global_generator_alone(member):
    X, has_artifact = activations(size=0.5)
    _, keys, *position = np.random.get_state()
    keys = keys.copy()
    first = member().fit(X, has_artifact)
    np.testing.assert_array_equal(np.random.get_state()[1], keys)
    assert list(np.random.get_state()[2:]) == position
    np.testing.assert_array_equal(member().fit(X, has_artifact).directions_, first.directions_)


def _with(X, value):
    X = X.copy()
    X[3, 1] = value
    return X


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda X, y: (X, np.ones(len(X), dtype=bool)), "one class: True"),
        (lambda X, y: (_with(X, np.nan), y), "contains NaN"),
        (lambda X, y: (_with(X, np.inf), y), "infinity"),
        (lambda X, y: (np.full_like(X, 0.1), y), "6 features are constant over all 60 samples"),
        (lambda X, y: (X[:0], y[:0]), "0 sample"),
        (lambda X, y: (X[:, :0], y), "0 feature"),
        (lambda X, y: (X, y[:-1]), "inconsistent numbers of samples"),
        (lambda X, y: (X, np.arange(len(X)) % 3), "Only binary classification is supported"),
        (lambda X, y: (X, X[:, 0]), "Unknown label type"),
    ],
)
def test_bad_input_gets_a_sentence(member, spoil, sentence):
    with pytest.raises(DataError, match=sentence):
        member().fit(*spoil(*activations()))


@pytest.mark.parametrize("member", MEMBERS)
def test_not_fitted_is_said(member):
    for ask in (lambda cav: cav.predict([[1.0]]), lambda cav: cav.direction_, lambda cav: cav.to_tensors()):
        with pytest.raises(NotFittedError, match="has no direction yet"):
            ask(member())


def test_equal_means_have_no_direction():
    with pytest.raises(DataError, match="do not differ"):
        SignalCAV().fit([[-1.0], [1.0], [-1.0], [1.0]], [0, 0, 1, 1])


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 4), size=st.sampled_from([1e-12, 1.0, 1e12]))
def test_several_directions_become_orthonormal_and_point_to_the_artifact(seed, k, size):
    X, has_artifact = activations(seed=seed % 7)
    raw = np.random.default_rng(seed).normal(size=(k, 6)) * size
    cav = GivenCAV(raw).fit(X, has_artifact)
    np.testing.assert_allclose(cav.directions_ @ cav.directions_.T, np.eye(k), atol=1e-10)
    assert np.all(cav.scale_ >= 0)
    np.testing.assert_allclose(abs(cav.directions_[0] @ raw[0]), np.linalg.norm(raw[0]))
    span = cav.directions_.T @ cav.directions_
    np.testing.assert_allclose(raw @ span, raw, atol=1e-9 * size)


def test_several_directions_decide_along_the_way_between_the_class_means():
    X, has_artifact = activations()
    cav = GivenCAV(np.eye(6)[:2]).fit(X, has_artifact)
    way = X[has_artifact].mean(0)[:2] - X[~has_artifact].mean(0)[:2]
    middle = (X[has_artifact].mean(0)[:2] + X[~has_artifact].mean(0)[:2]) / 2
    np.testing.assert_allclose(cav.decision_function(X), (X[:, :2] - middle) @ way / np.linalg.norm(way))
    assert cav.score_along(X).shape == (60, 2)


@pytest.mark.parametrize("raw", [[[1, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0]], np.ones((7, 6))])
def test_dependent_directions_are_an_error(raw):
    with pytest.raises(DataError, match="linearly independent"):
        GivenCAV(raw).fit(*activations())


@pytest.mark.parametrize("labels", [(False, True), ("clean", "ruler"), (3, 7)])
def test_round_trip_keeps_everything(tmp_path, labels):
    X, bits = activations()
    cavs = {name: member().fit(X, np.where(bits, *labels[::-1])) for name, member in CAV.members().items()}
    cavs["both"] = join_cavs({name: cavs[name] for name in ("signal", "pair")}, protect=[np.eye(6)[5]])
    save_cavs(tmp_path / "cavs.safetensors", cavs)
    loaded = load_cavs(tmp_path / "cavs.safetensors")
    assert list(loaded) == list(cavs)
    for name, cav in cavs.items():
        assert type(loaded[name]) is type(cav)
        assert (loaded[name].get_params(), loaded[name].label) == (cav.get_params(), cav.label)
        assert vars(loaded[name]).keys() == vars(cav).keys()
        for attribute, value in vars(cav).items():
            restored = getattr(loaded[name], attribute)
            assert type(restored) is type(value) or attribute == "label_"  # an array of one word, see `label`
            np.testing.assert_array_equal(restored, value)
        np.testing.assert_array_equal(loaded[name].predict(X), cav.predict(X))


def test_files_that_are_not_ours_are_errors(tmp_path):
    (tmp_path / "text").write_text("not a tensor")
    save_file({"weight": np.zeros(3)}, tmp_path / "weights")
    files = {"missing": "There is no file", "text": "not a readable safetensors file", "weights": "holds no CAVs"}
    for name, sentence in files.items():
        with pytest.raises(RunError, match=sentence):
            load_cavs(tmp_path / name)


def test_damaged_files_are_errors(tmp_path):
    path = tmp_path / "c"
    save_cavs(path, {"signal": SignalCAV().fit(*activations())})
    whole = path.read_bytes()
    for place in range(0, len(whole), 13):
        for damaged in (whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :], whole[:place]):
            path.write_bytes(damaged)
            with pytest.raises(RunError):
                load_cavs(path)


@pytest.mark.parametrize(
    ("header", "error", "sentence"),
    [
        ({"name": "signal", "options": {"later": 1}, "words": {}}, RunError, "another version"),
        ({"name": "singal", "options": {}, "words": {}}, UnknownNameError, "Did you mean 'signal'"),
    ],
)
def test_files_of_another_version_are_errors(header, error, sentence, tmp_path, monkeypatch):
    monkeypatch.setattr(SignalCAV, "to_header", lambda _: json.dumps(header))
    save_cavs(tmp_path / "c", {"signal": SignalCAV().fit(*activations())})
    with pytest.raises(error, match=sentence):
        load_cavs(tmp_path / "c")


# Some checks have as few as three samples of a class.
@parametrize_with_checks([cav(**({"folds": 2} if "folds" in cav().get_params() else {})) for cav in MEMBERS])
def test_scikit_learn_contract(estimator: CAV, check: Any) -> None:
    check(estimator)


def test_a_direction_of_captum_s_is_measured_and_stored() -> None:
    X, has_artifact = activations()
    own = SignalCAV().fit(X, has_artifact)
    concepts = [SimpleNamespace(id=number, name=name) for number, name in enumerate(("ruler", "none"))]
    stats = {"weights": np.stack([own.direction_, -own.direction_]), "classes": [0, 1]}
    theirs: Any = SimpleNamespace(concepts=concepts, stats=stats)
    back = from_captum(theirs, X, has_artifact, concept="ruler")
    np.testing.assert_allclose(back.direction_, own.direction_)
    np.testing.assert_allclose(back.scale_, own.scale_)
    again = CAV.from_tensors(back.to_tensors(), back.to_header())
    np.testing.assert_array_equal(again.direction_, back.direction_)
    for wrong in ("rular", 7):
        with pytest.raises(DataError, match=r"ruler|concept 7"):
            from_captum(theirs, X, has_artifact, concept=wrong)
    with pytest.raises(DataError, match="6 features"):
        GivenCAV([1.0, 0.0]).fit(X, has_artifact)


def test_captum_reads_what_is_written() -> None:
    concept = pytest.importorskip("captum.concept")
    X, has_artifact = activations()
    own = SignalCAV().fit(X, has_artifact)
    theirs = to_captum(own, "fc", concept="ruler")
    assert isinstance(theirs, concept.CAV)
    back = from_captum(theirs, X, has_artifact, concept="ruler")
    np.testing.assert_allclose(back.direction_, own.direction_, atol=1e-6)
