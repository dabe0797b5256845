"""Draws: other images carry the artifact, and nothing of what is held out is seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hansfree.activations import find_pairs
from hansfree.datasets import Stamped
from hansfree.errors import DataError
from hansfree.experiments.subjects import Subject
from hansfree.models import build_model, predict_logits
from hansfree.tournament import (
    APART,
    AUGMENTED,
    BALANCED_REFERENCE,
    BIASED,
    ENTRANTS,
    PAIRING,
    Draw,
    fit_cav,
    judge_model,
    make_draws,
    model_named,
    play,
    train_for,
)
from hansfree.weights import write_weights
from tests.experiments.examples import Joint, Single, opened


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    work = tmp_path_factory.mktemp("draws")
    weights = work / "start.safetensors"
    write_weights(weights, build_model("demo", classes=4, seed=5).state_dict())
    with opened(work, Single(artifact="timestamp"), trained="head", weights=str(weights), epochs=20) as subject:
        yield subject


@pytest.fixture(scope="module")
def draws(subject: Subject) -> list[Draw]:
    return list(make_draws(subject, subject.study.data("demo"), range(2)))


def test_other_images_of_the_biased_class_carry_the_artifact(draws: list[Draw]) -> None:
    bits = [np.asarray(draw.train.has_artifact) for draw in draws]
    assert [bit.sum() for bit in bits] == [20, 20]  # half of the 40 images of the class
    assert not np.array_equal(*bits)
    for draw, bit in zip(draws, bits):
        assert set(draw.train.labels[bit]) == {draw.biased_class}
        assert np.array_equal(draw.train.ids, draws[0].train.ids)


def test_the_images_of_a_draw_are_those_with_and_without_the_artifact(subject: Subject, draws: list[Draw]) -> None:
    study = subject.study.data("demo")
    row = int(np.flatnonzero(draws[1].train.has_artifact)[0])
    full = Stamped(study.train.source, study.train.artifact, share=1, seed=study.train.seed)
    trunk = draws[1].cut.trunk
    with torch.no_grad():
        expected = trunk(full.batch([row]).image)[0]
    found = torch.cat([layer for layer, *_ in draws[1].train.stream()])[row]
    torch.testing.assert_close(found, expected[0], atol=1e-5, rtol=1e-5)


def test_pairs_are_images_that_do_not_carry_it_yet(draws: list[Draw]) -> None:
    for draw in draws:
        marked = set(draw.train.ids[np.asarray(draw.train.has_artifact)])
        assert marked.isdisjoint(draw.pairs.clean.ids)
        assert len(draw.pairs.clean) == len(draw.train) - len(marked)
        assert np.array_equal(draw.pairs.clean.ids, draw.pairs.biased.ids)
        held_out = {*draw.val.clean.ids, *draw.test.clean.ids}
        assert held_out.isdisjoint(draw.train.ids)


@pytest.mark.parametrize("name", [AUGMENTED, PAIRING])
def test_who_wants_pairs_sees_the_training_images_too(name: str, draws: list[Draw]) -> None:
    draw = draws[0]
    seen, count = train_for(ENTRANTS[name], draw), len(draw.train)
    assert np.array_equal(seen.ids, [*draw.train.ids, *draw.pairs.biased.ids])
    assert np.array_equal(seen.has_artifact[:count], draw.train.has_artifact)  # marked images are among them
    assert seen.has_artifact[count:].all()
    assert len(find_pairs(seen)) == len(draw.pairs.clean)


def test_each_draw_has_models_of_its_own(subject: Subject, draws: list[Draw]) -> None:
    heads = [model.classifier.weight for draw in draws for model in (draw.model, draw.reference)]
    assert all(not torch.equal(a, b) for i, a in enumerate(heads) for b in heads[:i])
    outcome = judge_model(draws[0], draws[0].model)
    logits = predict_logits(draws[0].model, subject.study.data("demo").test_biased)
    assert outcome.biased == logits.argmax(1).tolist()


def test_the_balanced_reference_learned_from_the_reference_images_alone(draws: list[Draw]) -> None:
    draw = draws[0]
    assert not np.asarray(draw.clean.has_artifact).any()
    assert model_named(BIASED, draw) is draw.model
    solved = model_named(BALANCED_REFERENCE, draw)
    assert not torch.equal(solved.classifier.weight, draw.reference.classifier.weight)
    poisoned = replace(draw, train=draw.pairs.biased)  # what the entrants see does not matter to it
    again = model_named(BALANCED_REFERENCE, poisoned)
    torch.testing.assert_close(solved.classifier.weight, again.classifier.weight)


def test_a_signal_cav_sees_the_marked_images_and_a_pair_cav_the_pairs(draws: list[Draw]) -> None:
    draw = draws[0]
    signal, pair = (fit_cav(ENTRANTS[name], draw) for name in ("rr-clarc", "rr-clarc/pair-1"))
    change = (draw.pairs.biased.pooled - draw.pairs.clean.pooled).mean(0)
    np.testing.assert_allclose(pair.direction_, change / np.linalg.norm(change), atol=1e-5)
    assert signal.direction_ @ pair.direction_ > 0


def test_the_strength_is_chosen_on_validation_images(draws: list[Draw]) -> None:
    draw = draws[0]
    outcome = play(ENTRANTS["rr-clarc/pair-1/converged"], draw)
    assert outcome is not None
    assert outcome.strength in ENTRANTS["rr-clarc"].kind.grid
    blind = replace(draw, test=draw.val)
    again = play(ENTRANTS["rr-clarc/pair-1/converged"], blind)
    assert again is not None
    assert (again.strength, again.val_biased) == (outcome.strength, outcome.val_biased)  # the test images say nothing
    labels = np.asarray(draw.val.clean.labels)
    right = [np.mean(np.array(again.biased)[labels == label] == label) for label in np.unique(labels)]
    assert np.mean(right) == pytest.approx(again.val_biased)


@pytest.fixture(scope="module")
def whole_work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whole")


@pytest.fixture(scope="module")
def whole(whole_work: Path) -> list[Draw]:
    with opened(whole_work, Joint()) as subject:
        return list(make_draws(subject, subject.study.data("demo"), [0, 1]))


def test_each_draw_of_whole_models_trains_its_own_and_keeps_them(
    whole: list[Draw], whole_work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = whole
    assert (first.tuning.seed, second.tuning.seed) == (0, 1)
    assert len(first.train) == len(second.train) == 160
    models = [first.model, first.reference, second.model, second.reference]
    kernels = [next(model.parameters()) for model in models]  # of the first layer: trunks differ too
    assert all(not torch.equal(a, b) for i, a in enumerate(kernels) for b in kernels[:i])

    monkeypatch.setattr("hansfree.experiments.subjects.pretrain", None)  # what is kept is not trained again
    with opened(whole_work, Joint()) as subject:
        (again,) = make_draws(subject, subject.study.data("demo"), [1])
    assert torch.equal(next(again.model.parameters()), next(second.model.parameters()))


def test_whole_models_are_asked_about_their_own_features(whole: list[Draw]) -> None:
    for draw in whole:
        for name in APART:
            model = model_named(name, draw)  # references have other trunks, which the cache does not know
            said = predict_logits(model, draw.data.test_biased)
            assert judge_model(draw, model).biased == said.argmax(1).tolist()
        for images, kept in ((draw.data.train, draw.train), (draw.data.val_biased, draw.val.biased)):
            with torch.no_grad():
                expected = draw.cut.trunk(images.batch([3]).image)[0]
            found = torch.cat([layer for layer, *_ in kept.stream()])[3]
            torch.testing.assert_close(found, expected[0], atol=1e-4, rtol=1e-4)
        solved = model_named(BALANCED_REFERENCE, draw)
        assert not torch.equal(solved.classifier.weight, draw.reference.classifier.weight)


def test_data_without_pairs_are_refused(subject: Subject) -> None:
    data = replace(subject.study.data("demo"), train_biased=None)
    with pytest.raises(DataError, match="same images without and with the artifact"):
        next(make_draws(subject, data, [0]))


def test_studies_that_relabel_images_are_refused(subject: Subject) -> None:
    data = subject.study.data("demo")
    data.train.is_relabelled[0] = True
    with pytest.raises(DataError, match="relabel"):
        next(make_draws(subject, data, [0]))
