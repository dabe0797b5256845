"""What every correction of the whole network promises, and the loop that they share."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from hansfree.corrections.deep import DeepCorrection, Match, NetworkTuning, Transplant
from hansfree.corrections.deep.base import Step, flip_and_shift
from hansfree.corrections.deep.images import TrainingImages
from hansfree.corrections.training.model_loop import Checkpoint
from hansfree.errors import CacheError, DivergedError, OptionError
from tests.corrections.deep.examples import KINDS, Drawn, Kind, World, corrected, scores, world
from tests.corrections.examples import count_hooks, snapshot

METHODS = DeepCorrection.members()
SHORT = NetworkTuning(epochs=2, batch_size=32)


@pytest.fixture(scope="module")
def biased() -> World:
    """A network with the artifact, and few images to correct it on."""
    return World(world("patch").model, Drawn("patch", 160))


@pytest.mark.parametrize("name", METHODS)
def test_the_model_is_not_touched_and_the_result_is_of_its_class(name: str, biased: World) -> None:
    model = copy.deepcopy(biased.model).train()
    model.fc.bias.requires_grad_(False)
    before = snapshot(model)
    corrected = METHODS[name](tuning=SHORT).correct(model, biased.train)
    assert snapshot(model) == before
    assert type(corrected) is type(model)
    assert list(corrected.state_dict()) == list(model.state_dict())
    assert [module.training for module in corrected.modules()] == [module.training for module in model.modules()]
    assert [each.requires_grad for each in corrected.parameters()] == [
        each.requires_grad for each in model.parameters()
    ]
    assert all(each.grad is None for each in corrected.parameters())
    assert sum(map(count_hooks, corrected.modules())) == 0
    for (key, own), other in zip(corrected.state_dict().items(), model.state_dict().values()):
        is_statistic = key.endswith(("running_mean", "running_var", "num_batches_tracked"))
        assert torch.equal(own, other) == is_statistic, key


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "is_given"), [*((name, False) for name in METHODS), ("transplant", True)])
def test_the_artifact_is_used_before_and_not_after(name: str, is_given: bool, kind: Kind) -> None:
    flips, accuracy = scores(world(kind).model, kind)
    flips_after, accuracy_after = scores(corrected(kind, name, is_given=is_given), kind)
    assert flips > 0.6
    assert flips_after < 0.12
    assert accuracy_after > accuracy - 0.02
    assert scores(corrected(kind, "match", 0.0), kind)[0] > 0.2, "fine-tuning alone does not do it"


class KilledError(Exception):
    pass


@pytest.mark.parametrize("name", METHODS)
def test_a_killed_training_resumes_to_the_same_bytes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, biased: World
) -> None:
    method = METHODS[name](tuning=SHORT)
    whole = method.correct(biased.model, biased.train)
    write = Checkpoint.write

    def write_and_die(self: Checkpoint, epoch: int, *state: object) -> None:
        write(self, epoch, *state)  # type: ignore[arg-type]
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "write", write_and_die)
        with pytest.raises(KilledError):
            method.correct(biased.model, biased.train, folder=tmp_path)
    assert snapshot(method.correct(biased.model, biased.train, folder=tmp_path)) == snapshot(whole)
    (file,) = tmp_path.glob("*.checkpoint")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert snapshot(method.correct(biased.model, biased.train, folder=tmp_path)) == snapshot(whole)
    with pytest.raises(CacheError, match="other options"):
        METHODS[name](tuning=replace(SHORT, seed=1)).correct(biased.model, biased.train, folder=tmp_path)


def test_a_diverged_strength_is_an_error_and_no_candidate(biased: World) -> None:
    method = Match(strength=1.0, tuning=NetworkTuning(learning_rate=1e30, epochs=1))
    with pytest.raises(DivergedError, match="smaller strength or rate"):
        method.correct(biased.model, biased.train)
    (candidate,) = method.candidates(biased.model, biased.train, (1.0,))
    assert candidate.model is None
    assert isinstance(candidate.error, DivergedError)


def test_no_hook_is_left_after_an_error() -> None:
    network = copy.deepcopy(world("patch").model)
    images = TrainingImages(Drawn("patch", 128))
    objective = Match().objective(network, images)
    rows, choice = objective.draw(np.arange(4), np.random.default_rng(0))
    with pytest.raises(RuntimeError):
        objective.terms(network, Step(np.arange(4), rows, choice), torch.zeros(4, 5, 16, 16))
    assert sum(map(count_hooks, network.modules())) == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused(dtype: torch.dtype) -> None:
    model = copy.deepcopy(world("patch").model).to(dtype)
    with pytest.raises(OptionError, match="half precision"):
        Match(tuning=SHORT).correct(model, world("patch").train)


def test_a_checkpoint_belongs_to_its_images_and_its_function(tmp_path: Path, biased: World) -> None:
    batch = biased.train.batch(range(len(biased.train)))
    plain = TensorDataset(batch.image, batch.label, batch.has_artifact)
    Match(tuning=SHORT).correct(biased.model, plain, folder=tmp_path)
    with pytest.raises(CacheError, match="other images"):
        Match(tuning=SHORT).correct(biased.model, TensorDataset(batch.image + 1, *plain.tensors[1:]), folder=tmp_path)
    Match(tuning=replace(SHORT, workers=1)).correct(biased.model, plain, folder=tmp_path)
    functions = [lambda image, rng: 255 - image, lambda image, rng: image // 2]
    Transplant(insert=functions[0], tuning=SHORT).correct(biased.model, biased.train, folder=tmp_path)
    with pytest.raises(CacheError, match="other options"):
        Transplant(insert=functions[1], tuning=SHORT).correct(biased.model, biased.train, folder=tmp_path)


def test_flips_and_shifts_stay_within_an_eighth() -> None:
    columns = torch.arange(16.0).expand(64, 1, 16, 16).clone()
    rows = columns.transpose(2, 3)
    moved = flip_and_shift(torch.cat([columns, rows], dim=1), np.random.default_rng(0))
    steps = moved[:, 0, 8].diff(dim=1)
    is_flipped = (steps[:, 7] < 0).numpy()
    assert 0.2 < is_flipped.mean() < 0.8
    centre = moved[:, 0, 8, 8].numpy() - np.where(is_flipped, 7, 8)
    assert sorted(set(centre)) == [-2, -1, 0, 1, 2]
    assert sorted(set((moved[:, 1, 8, 8] - 8).tolist())) == [-2, -1, 0, 1, 2]
    assert torch.equal(
        flip_and_shift(columns, np.random.default_rng(1)), flip_and_shift(columns, np.random.default_rng(1))
    )
