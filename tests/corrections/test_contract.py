"""What holds for every registered correction; names of methods along further CAVs."""

from __future__ import annotations

import copy
import pickle
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from hansfree.activations import Activations, collect_activations, cut_at
from hansfree.cavs import CAV, SignalCAV
from hansfree.corrections import (
    CAVCorrection,
    LatentCorrection,
    Need,
    along_cavs,
    method_named,
    split_name,
    uses_cav,
)
from hansfree.corrections.training import FineTuning, Optimizer, SolverSupport
from hansfree.errors import CacheError, DataError, DivergedError, OptionError, UnknownNameError
from hansfree.evaluation.evaluate import held_out_features, judge_head
from hansfree.models.surgery import insert_after
from tests.corrections.examples import EVERYWHERE, TinyImages, collect, count_hooks, fit_cav, snapshot

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
def test_the_corrected_model_is_of_the_same_class_and_the_given_one_untouched(name: str, where: str) -> None:
    model, data, activations, cav = setting(where, name=name)
    method = make(name, cav, data)
    before, cached = snapshot(model), activations.pooled.copy()
    fixed = method.correct(model, activations)
    assert snapshot(model) == before
    np.testing.assert_array_equal(activations.pooled, cached)
    assert type(fixed) is type(model)
    own, edit = model.state_dict(), method.edit(activations)
    extra = set() if edit is None else {f"hansfree_projection.{key}" for key in edit.state_dict()}
    assert set(fixed.state_dict()) == set(own) | extra
    # Only the head was trained, and all of it was.
    changed = {key for key, value in own.items() if not torch.equal(value, fixed.state_dict()[key])}
    assert changed <= set(cut_at(model, activations).trainable)
    assert any(key.endswith("weight") for key in changed), "nothing was trained"
    # Nothing of the training is left behind: no hook (but the projection's), no gradient, no flag.
    assert sum(map(count_hooks, fixed.modules())) <= (edit is not None)
    assert [p.requires_grad for p in fixed.parameters()] == [p.requires_grad for p in model.parameters()]
    assert all(parameter.grad is None for parameter in fixed.parameters())
    assert not any(module.training for module in fixed.modules())


@ALL_CASES
@EVERY
def test_the_corrected_model_does_what_was_evaluated_from_the_cache(name: str, where: str) -> None:
    model, data, activations, cav = setting(where, name=name)
    method = make(name, cav, data)
    cut = cut_at(model, activations)
    (trained,) = method.train(cut, activations, [method.strength])
    edit = method.edit(activations)
    held_out = held_out_features(cut, activations, activations, biased_class=0, cav=cav, edit=edit)
    evidence = judge_head(cut, trained.state, held_out)
    fixed = method.install(model, cut, activations, trained.state)
    with torch.no_grad():
        logits, original = fixed(data.images).numpy(), model(data.images).numpy()
    np.testing.assert_allclose(evidence.logits_clean, logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(evidence.logits_biased, logits, rtol=1e-4, atol=1e-5)
    assert np.abs(logits - original).max() > 1e-3, "the correction changed nothing"


@EVERY
def test_candidates_are_the_corrections_at_each_strength(name: str) -> None:
    model, data, activations, cav = setting(name=name)
    method = make(name, cav, data)
    strengths = method.info.strengths[:2] or (1.0,)
    for candidate, strength in zip(method.candidates(model, activations, strengths), strengths, strict=True):
        method.strength = strength
        assert (candidate.method, candidate.strength, candidate.error) == (name, strength, None)
        assert candidate.model is not None
        expected = method.correct(model, activations).state_dict()
        torch.testing.assert_close(dict(candidate.model.state_dict()), dict(expected), rtol=1e-4, atol=1e-5)


def test_a_diverged_candidate_has_an_error_and_no_model() -> None:
    model, data, activations, cav = setting()
    method = make("vanilla", cav, data, replace(TUNING, learning_rate=1e30))
    (candidate,) = method.candidates(model, activations)
    assert candidate.model is None
    assert isinstance(candidate.error, DivergedError)


@ALL_CASES
@EVERY
def test_weights_survive_a_file_and_a_fresh_model(name: str, where: str, tmp_path: Path) -> None:
    model, data, activations, cav = setting(where, name=name)
    method = make(name, cav, data)
    fixed = method.correct(model, activations)
    save_file(fixed.state_dict(), tmp_path / "fixed.safetensors")
    fresh = EVERYWHERE[where].build().eval()
    if (edit := method.edit(activations)) is not None:
        empty = copy.deepcopy(edit)
        empty.load_state_dict({key: torch.zeros_like(value) for key, value in edit.state_dict().items()})
        fresh = insert_after(fresh, activations.layer, empty, order=cut_at(model, activations).order)
    fresh.load_state_dict(load_file(tmp_path / "fixed.safetensors"), strict=True)
    with torch.no_grad():
        expected = fixed(data.images)
        torch.testing.assert_close(fresh(data.images), expected)
        torch.testing.assert_close(copy.deepcopy(fixed)(data.images), expected)
        torch.testing.assert_close(pickle.loads(pickle.dumps(fixed))(data.images), expected)


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
def test_the_seed_matters_as_the_info_states(name: str, optimizer: Optimizer) -> None:
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


@EVERY
def test_describe_names_the_method(name: str) -> None:
    _, data, _, cav = setting(name=name)
    method = make(name, cav, data)
    assert method.describe()["method"] == name
    assert method.info.has_strength == bool(method.info.strengths)
    assert list(method.info.strengths) == sorted(set(method.info.strengths)), (
        "of equals the first is taken, which must be the weakest"
    )


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
def test_for_the_paper_only_the_units_differ(name: str) -> None:
    _, data, _, cav = setting(name=name)
    own = make(name, cav, data)
    info = MEMBERS[name].info
    papers = MEMBERS[name].for_run(cav=cav, images=data, tuning=TUNING, options=info.paper_options)
    assert type(papers) is type(own)
    assert info.has_strength == bool(info.paper_strengths)
    ours, theirs = vars(own), vars(papers)
    changed = {option: value for option, value in theirs.items() if value is not ours[option] and value != ours[option]}
    assert changed == ({"scale": "paper"} if name == "rr-clarc" else {})


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
    ("name", "sentence"),
    [
        ("rr-clrc@svm", "There is no method called 'rr-clrc'. Did you mean 'rr-clarc'?"),
        ("rr-clarc@swm", "There is no CAV called 'swm'. Did you mean 'svm'?"),
        ("rr-clarc@", "There is no CAV called ''."),
        ("rr-clarc@svm@svm", "There is no CAV called 'svm@svm'."),
    ],
)
def test_a_wrong_half_gets_the_nearest(name: str, sentence: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        method_named(name)
    assert sentence in str(caught.value)


def test_a_method_that_goes_along_no_cav_is_refused() -> None:
    with pytest.raises(OptionError, match="There is no 'vanilla@svm': vanilla uses no CAV"):
        method_named("vanilla@svm")
