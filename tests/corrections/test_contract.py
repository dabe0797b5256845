"""What holds for every registered correction; names of methods along further CAVs; options that cannot be."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.base import clone
from torch import nn

from hansfree.activations import Activations, collect_activations, cut_at
from hansfree.cavs import CAV, SignalCAV
from hansfree.corrections import (
    RRR,
    CAVCorrection,
    Correction,
    LatentCorrection,
    Match,
    Need,
    NetworkTuning,
    RClArC,
    RRClArC,
    RRClArCStep,
    along_cavs,
    method_named,
    split_name,
    uses_cav,
)
from hansfree.corrections.training import FineTuning, Optimizer, Pretraining, SolverSupport, solver
from hansfree.errors import CacheError, DataError, OptionError, UnknownNameError
from hansfree.evaluation.evaluate import held_out_features, judge_head
from hansfree.models.surgery import insert_after
from hansfree.reasons import ReasonCode
from tests.corrections.examples import EVERYWHERE, Kind, TinyImages, collect, count_hooks, fit_cav, snapshot

MEMBERS = LatentCorrection.members()
TUNING = FineTuning(learning_rate=0.05, epochs=2, batch_size=5)
EVERY = pytest.mark.parametrize("name", MEMBERS)
ALL_CASES = pytest.mark.parametrize("where", EVERYWHERE)


def make(name: str, cav: CAV, images: TinyImages, tuning: FineTuning = TUNING) -> LatentCorrection:
    return MEMBERS[name].for_run(cav=cav, images=images, tuning=tuning)


def setting(where: str = "convolution", *, name: str = "vanilla") -> tuple[nn.Module, TinyImages, Activations, CAV]:
    case, data = EVERYWHERE[where], TinyImages(artifact="pairs" if Need.PAIRS in MEMBERS[name].info.needs else "leaks")
    model = case.model()
    activations = collect(case, model, data)
    assert activations.traced == (where != "hooks")
    return model, data, activations, fit_cav(activations)


@ALL_CASES
@EVERY
def test_a_correction(name: str, where: str, tmp_path: Path) -> None:
    """It gives a model of the same class, leaves the given one alone, and does what was evaluated from the cache."""
    model, data, activations, cav = setting(where, name=name)
    method = make(name, cav, data)
    before, cached = snapshot(model), activations.pooled.copy()
    fixed = method.correct(model, activations)
    assert snapshot(model) == before
    np.testing.assert_array_equal(activations.pooled, cached)
    assert type(fixed) is type(model)
    own, edit, cut = model.state_dict(), method.edit(activations), cut_at(model, activations)
    extra = set() if edit is None else {f"hansfree_projection.{key}" for key in edit.state_dict()}
    assert set(fixed.state_dict()) == set(own) | extra
    # Only the head was trained, and all of it was.
    changed = {key for key, value in own.items() if not torch.equal(value, fixed.state_dict()[key])}
    assert changed <= set(cut.trainable)
    assert any(key.endswith("weight") for key in changed), "nothing was trained"
    # Nothing of the training is left behind: no hook (but the projection's), no gradient, no flag.
    assert sum(map(count_hooks, fixed.modules())) <= (edit is not None)
    assert [p.requires_grad for p in fixed.parameters()] == [p.requires_grad for p in model.parameters()]
    assert all(parameter.grad is None for parameter in fixed.parameters())
    assert not any(module.training for module in fixed.modules())

    state = {key: fixed.state_dict()[key] for key in cut.head_parameters()}
    held_out = held_out_features(cut, activations, activations, biased_class=0, cav=cav, edit=edit)
    evidence = judge_head(cut, state, held_out)
    with torch.no_grad():
        logits, original = fixed(data.images), model(data.images)
    np.testing.assert_allclose(evidence.logits_clean, logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(evidence.logits_biased, logits, rtol=1e-4, atol=1e-5)
    assert (logits - original).abs().max() > 1e-3, "the correction changed nothing"

    # The weights survive a file and a fresh model, and the model copies and pickles.
    save_file(fixed.state_dict(), tmp_path / "fixed.safetensors")
    fresh = EVERYWHERE[where].build().eval()
    if edit is not None:
        empty = copy.deepcopy(edit)
        empty.load_state_dict({key: torch.zeros_like(value) for key, value in edit.state_dict().items()})
        fresh = insert_after(fresh, activations.layer, empty, order=cut.order)
    fresh.load_state_dict(load_file(tmp_path / "fixed.safetensors"), strict=True)
    for same in (fresh, copy.deepcopy(fixed), pickle.loads(pickle.dumps(fixed))):
        with torch.no_grad():
            torch.testing.assert_close(same(data.images), logits)


def held_out(model: nn.Module, *artifacts: Kind) -> tuple[Activations, ...]:
    return tuple(collect(EVERYWHERE["convolution"], model, TinyImages(90, artifact=kind, seed=1)) for kind in artifacts)


@EVERY
def test_a_path_is_validated_and_its_best_model_is_the_correction_at_that_strength(name: str) -> None:
    model, data, activations, cav = setting(name=name)
    method, (clean, biased) = make(name, cav, data), held_out(model, "none", "all")
    strengths = method.info.strengths[1::-1] or (1.0,)
    path = method.path(model, activations, validation=(clean, biased), strengths=strengths, budget=1.0)
    assert [line["strength"] for line in path.table()] == sorted(strengths)
    assert [line["is_best"] for line in path.table()].count(True) == 1
    assert path.best is not None
    method.strength = path.best.strength
    expected = method.correct(model, activations).state_dict()
    torch.testing.assert_close(dict(path.best.model.state_dict()), dict(expected), rtol=1e-4, atol=1e-5)
    assert len(path.plot().axes) == 1
    with pytest.raises(DataError, match="another layer or model"):
        method.path(model, activations, validation=(clean, replace(biased, layer="fc")))
    with pytest.raises(DataError, match="of at least 25 clean"):
        method.path(model, activations, validation=(activations, activations))


def test_without_counter_examples_a_path_is_selected_by_the_derivative() -> None:
    model, data, activations, cav = setting()
    (natural,) = held_out(model, "leaks")
    path = make("rr-clarc", cav, data).path(model, activations, validation=natural, strengths=[1.0], budget=1.0)
    assert path.selection.reason.code == ReasonCode.SMALLEST_EFFECT
    assert path.table()[0]["biased"] is None
    assert repr(path.table()).split()[:6] == ["strength", "clean", "biased", "derivative", "is_best", "1"]
    assert path.table().to_frame()["is_best"].tolist() == [True]
    with pytest.raises(DataError, match="2 classes of at least 25 such"):
        make("vanilla", cav, data).path(model, activations, validation=natural)
    with pytest.raises(DataError, match="need artifact labels"):
        make("vanilla", cav, data).path(model, activations, validation=replace(natural, has_artifact=None))


@EVERY
def test_a_model_in_training_mode_with_frozen_parts_stays_so(name: str) -> None:
    model, data, activations, cav = setting(name=name)
    model.train()
    model.features.requires_grad_(False)
    before = snapshot(model)
    fixed = make(name, cav, data).correct(model, activations)
    assert snapshot(model) == before
    assert all(module.training for module in fixed.modules())
    assert not fixed.features.weight.requires_grad
    assert fixed.fc.weight.requires_grad
    for statistic in ("running_mean", "running_var", "num_batches_tracked"):
        assert torch.equal(getattr(fixed.norm, statistic), getattr(model.norm, statistic))


@EVERY
def test_the_given_model_is_untouched_when_training_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, data, activations, cav = setting(name=name)
    method = make(name, cav, data)
    before, state = snapshot(model), torch.random.get_rng_state()
    steps = 0

    def fail_later(*_arguments: Any, **_options: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps > 1:
            raise RuntimeError("in the middle of training")
        return genuine(*_arguments, **_options)

    genuine = nn.functional.cross_entropy
    monkeypatch.setattr(nn.functional, "cross_entropy", fail_later)
    with pytest.raises(RuntimeError, match="in the middle"):
        method.correct(model, activations)
    assert snapshot(model) == before
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.overrides._get_current_function_mode() is None
    monkeypatch.undo()
    fixed = method.correct(model, activations)  # and the next attempt is not disturbed
    assert torch.isfinite(fixed(data.images)).all()


@EVERY
def test_the_global_random_state_is_neither_used_nor_changed(name: str) -> None:
    model, data, activations, cav = setting(name=name)
    method = make(name, cav, data)
    results = []
    for seed in (1, 2):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            before = torch.random.get_rng_state(), np.random.get_state()[1:3], random.getstate()
            results.append(method.correct(model, activations).state_dict())
            assert torch.equal(torch.random.get_rng_state(), before[0])
            np.testing.assert_equal(np.random.get_state()[1:3], before[1])
            assert random.getstate() == before[2]
    assert all(torch.equal(results[0][key], results[1][key]) for key in results[0])


@EVERY
@pytest.mark.parametrize("optimizer", ["sgd", "converged"])
def test_the_seed_matters_as_the_info_states(name: str, optimizer: Optimizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "MAX_ITERATIONS", 5)
    model, data, activations, cav = setting(name=name)
    if optimizer == "converged" and make(name, cav, data).solver is SolverSupport.NONE:
        pytest.skip("it has no minimum to go to")
    tunings = (replace(TUNING, optimizer=optimizer, seed=seed) for seed in (1, 2))
    first, second = (make(name, cav, data, tuning).correct(model, activations).state_dict() for tuning in tunings)
    depends = not all(torch.equal(first[key], second[key]) for key in first)
    assert depends == (MEMBERS[name].info.uses_seed and optimizer != "converged")


@EVERY
def test_activations_of_another_model_are_refused(name: str) -> None:
    model, data, _, _ = setting(name=name)
    with torch.no_grad():
        model.features.weight += 0.1
    foreign, cav = setting(name=name)[2:]
    with pytest.raises(CacheError, match="not taken from this model"):
        make(name, cav, data).correct(model, foreign)


@pytest.mark.parametrize("name", [name for name, member in MEMBERS.items() if issubclass(member, CAVCorrection)])
@pytest.mark.parametrize("kind", ["other channels", "not fitted"])
def test_a_wrong_cav_is_refused_before_training(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, data, activations, _ = setting(name=name)
    cav = SignalCAV()
    if kind == "other channels":
        cav.fit(np.random.default_rng(0).normal(size=(8, 5)), np.arange(8) % 2)
    monkeypatch.setattr("hansfree.corrections.latent.compute_features", None)  # any work would raise a TypeError
    with pytest.raises((DataError, ValueError), match=r"another layer|fit it"):
        make(name, cav, data).correct(model, activations)


@EVERY
@pytest.mark.parametrize("label", [-1, 3])
def test_labels_that_the_model_does_not_have_are_refused(name: str, label: int) -> None:
    model, data, _, cav = setting(name=name)
    data.labels[4] = label
    activations = collect_activations(model, "features", data)
    with pytest.raises(DataError, match="label"):
        make(name, cav, data).correct(model, activations)


def test_the_papers_grids_are_those_of_its_appendix() -> None:
    """App. A.3, written out: 22 values each; RRR's first one is printed as 5e-5."""
    rrr = [
        5e-5, 1e-3, 5e-3, 1e-2, 5e-2, 1e-1, 5e-1, 1e0, 5e0, 1e1, 5e1, 1e2, 5e2, 1e3, 5e3, 1e4, 5e4, 1e5, 5e5, 1e6, 5e6,
        1e7,
    ]  # fmt: skip
    rr_clarc = [
        5e1, 1e2, 5e2, 1e3, 5e3, 1e4, 5e4, 1e5, 5e5, 1e6, 5e6, 1e7, 5e7, 1e8, 5e8, 1e9, 5e9, 1e10, 5e10, 1e11, 5e11,
        1e12,
    ]  # fmt: skip
    assert len(rrr) == len(rr_clarc) == 22
    assert list(MEMBERS["rrr"].info.paper_strengths) == rrr
    assert list(MEMBERS["rr-clarc"].info.paper_strengths) == rr_clarc


@EVERY
def test_for_the_paper_only_its_options_differ(name: str) -> None:
    _, data, _, cav = setting(name=name)
    own = make(name, cav, data)
    info = MEMBERS[name].info
    papers = MEMBERS[name].for_run(cav=cav, images=data, tuning=TUNING, options=info.paper_options)
    assert type(papers) is type(own)
    assert own.describe()["method"] == name
    assert info.has_strength == bool(info.strengths) == bool(info.paper_strengths)
    assert list(info.strengths) == sorted(set(info.strengths)), "of equals the first is taken: the weakest"
    ours = {option: value for option, value in vars(own).items() if not option.startswith("_")}
    changed = {
        option: getattr(papers, option) for option, value in ours.items() if getattr(papers, option) is not value
    }
    assert {option: value for option, value in changed.items() if value != ours[option]} == info.paper_options


def test_the_papers_five_run_where_none_is_named() -> None:
    assert LatentCorrection.defaults() == ["vanilla", "rrr", "p-clarc", "a-clarc", "rr-clarc"]


def test_methods_along_a_cav_are_named_once_more_for_each_further_one() -> None:
    names = list(along_cavs(["vanilla", "rr-clarc", "leace", "p-clarc"], ["svm", "pair"]))
    along = ["rr-clarc", "rr-clarc@svm", "rr-clarc@pair"]
    assert names == ["vanilla", *along, "leace", "p-clarc", "p-clarc@svm", "p-clarc@pair"]
    assert list(along_cavs(["vanilla", "rr-clarc"], [])) == ["vanilla", "rr-clarc"]


@pytest.mark.parametrize("method", LatentCorrection.members())
def test_every_name_leads_back_to_its_method(method: str) -> None:
    assert split_name(method) == (method, None)
    assert method_named(method) is LatentCorrection.named(method)
    for name in [*along_cavs([method], ["svm"])][1:]:
        assert split_name(name) == (method, "svm")
        assert method_named(name) is LatentCorrection.named(method)
    assert uses_cav(method) == issubclass(LatentCorrection.named(method), CAVCorrection)


@pytest.mark.parametrize(
    ("name", "error", "sentence"),
    [
        ("rr-clrc@svm", UnknownNameError, "There is no method called 'rr-clrc'. Did you mean 'rr-clarc'?"),
        ("rr-clarc@swm", UnknownNameError, "There is no CAV called 'swm'. Did you mean 'svm'?"),
        ("rr-clarc@", UnknownNameError, "There is no CAV called ''."),
        ("rr-clarc@svm@svm", UnknownNameError, "There is no CAV called 'svm@svm'."),
        ("vanilla@svm", OptionError, "There is no 'vanilla@svm': vanilla uses no CAV"),
    ],
)
def test_a_name_with_a_wrong_half_is_refused(name: str, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error) as caught:
        method_named(name)
    assert sentence in str(caught.value)


# Options


NAN = float("nan")
rr, step, r_clarc = (partial(kind, SignalCAV()) for kind in (RRClArC, RRClArCStep, RClArC))
rrr = partial(RRR, TinyImages())


@pytest.mark.parametrize(
    ("make", "options", "sentence"),
    [
        (rr, {"norm": "squarred"}, "Did you mean 'squared'"),
        (rr, {"target": "randm"}, "Did you mean 'random'"),
        (rr, {"scale": "papers"}, "Did you mean 'paper'"),
        (rr, {"norm": "cosine"}, "goes with norm='squared' only"),
        (rr, {"norm": "absolute"}, "goes with norm='squared' only"),
        (rr, {"target": []}, "names no class"),
        (rr, {"target": [0, "1"]}, "target"),
        (rr, {"target": 1.5}, "target"),
        *((rr, {"strength": strength}, "at least 0") for strength in (-1.0, NAN, float("inf"))),
        (step, {"target": "random"}, "draws signs anew"),
        (step, {"norm": "cosine"}, "norm is 'cosine'"),
        *((r_clarc, {"false_fire_rate": rate}, "false_fire_rate") for rate in (0.0, 1.0, NAN)),
        *((rrr, {"target": target}, "'sum' and a class number") for target in ("all", 0.5, np.array([0, 1]))),
        (Match, {"strength": NAN}, "at least 0"),
        (NetworkTuning, {"learning_rate": 0.0}, "learning_rate"),
        (NetworkTuning, {"momentum": 1.0}, "momentum"),
        (NetworkTuning, {"epochs": 0}, "epochs=0"),
        (NetworkTuning, {"workers": -1}, "workers=-1"),
        (FineTuning, {"optimizer": "rmsprop"}, "optimizer"),
        (FineTuning, {"learning_rate": 0.0}, "learning_rate"),
        (FineTuning, {"epochs": 0}, "epochs=0"),
        (FineTuning, {"momentum": 1.0}, "momentum is 1.0"),
        (FineTuning, {"optimizer": "adam", "momentum": 0.9}, "for optimizer='sgd' only"),
        (FineTuning, {"device": "gpu"}, "device"),
        (FineTuning, {"optimizer": "converged", "anchor": 0}, "anchor is 0"),
        (Pretraining, {"batch_size": 1}, "batch_size=1: at least 2"),
        (Pretraining, {"optimizer": "sdg"}, "Did you mean 'sgd'"),
        (Pretraining, {"momentum": 0.9}, "for optimizer='sgd' only"),
        (Pretraining, {"device": "gpu"}, "no device 'gpu'"),
        *((Pretraining, {"milestones": given}, "rising numbers of epochs") for given in ((4, 2), (2, 2), (0, 2))),
    ],
)
def test_options_that_cannot_be(make: Callable[..., Any], options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        make(**options)


FITTED = SignalCAV().fit(np.eye(4), [0, 0, 1, 1])


@pytest.mark.parametrize("method", Correction.members().values(), ids=lambda method: method.name)
def test_options_are_read_changed_and_copied_as_scikit_learn_does(method: type[Correction]) -> None:
    needed = [FITTED] * (Need.CAV in method.info.needs) + [TinyImages()] * (Need.MASKS in method.info.needs)
    first = method(*needed, strength=2.0)
    changed = first.clone(strength=3.0, tuning__epochs=7)
    assert (first.strength, changed.strength) == (2.0, 3.0)
    assert changed.get_params()["tuning__epochs"] == 7 != first.get_params()["tuning__epochs"]
    again = clone(first)
    assert type(again) is method
    assert again is not first
    for name, value in first.get_params(deep=False).items():
        assert getattr(again, name) is value, "a fitted CAV stays fitted"
    assert "strength=2.0" in repr(first)
    assert "tuning" not in repr(first)
    assert "epochs=7" in repr(changed)
    assert first.set_params(strength=4.0) is first
    assert first.strength == 4.0
    for params, error in (({"strenght": 1}, "Did you mean 'strength'"), ({"strength": -1}, "at least 0")):
        with pytest.raises(OptionError, match=error):
            first.set_params(**params)
    assert first.strength == 4.0
