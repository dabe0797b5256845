"""The penalty is what its definition says, and driving it to zero removes the artifact from the whole network."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from hansfree._internal.hashing import seeded
from hansfree.corrections.deep import Match
from hansfree.corrections.deep.base import Step, _has_bfloat16
from hansfree.corrections.deep.images import TrainingImages
from hansfree.corrections.deep.insertion import is_above_low_bits
from hansfree.corrections.deep.match import GROUP_SIZE, matching_penalty
from hansfree.corrections.deep.stages import collect_pooled, find_stages
from tests.corrections.deep.examples import (
    SIZE,
    TUNING,
    Drawn,
    Kind,
    SmallNet,
    all_images,
    corrected,
    scores,
    world,
)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def test_the_penalty_is_the_squared_gap_over_the_variance() -> None:
    """With the gap as its own running gap; averaged over the poolings."""
    gap, variance = draw(2, 5), draw(2, seed=1).exp()
    expected = 0.0
    for pooling in range(2):
        expected += sum(float(gap[pooling, channel]) ** 2 for channel in range(5)) / float(variance[pooling]) / 2
    assert matching_penalty(gap, gap, variance).item() == pytest.approx(expected, rel=1e-12)


def test_a_gap_against_the_running_gap_costs_nothing() -> None:
    gap = draw(2, 5).requires_grad_()
    penalty = matching_penalty(gap, -gap.detach(), torch.ones(2, dtype=torch.float64))
    assert penalty.item() == 0
    assert not torch.autograd.grad(penalty, gap)[0].any()


def test_over_all_batches_the_expectation_is_the_exact_squared_gap() -> None:
    """Exact, by every pair of batches of 3 of 7 artifact and 6 other images; no batch is clamped.

    The square of a batch's own gap is larger: it contains the variance of the batch.
    """
    artifact, clean = draw(7, 2, 4) + 3, draw(6, 2, 4, seed=1)
    running = artifact.mean(0) - clean.mean(0)
    variance = torch.cat([artifact, clean]).var(0).sum(-1)
    penalties, squares = [], []
    for some in combinations(range(7), 3):
        for others in combinations(range(6), 3):
            gap = artifact[list(some)].mean(0) - clean[list(others)].mean(0)
            assert (torch.linalg.vecdot(gap, running) > 0).all()
            penalties.append(matching_penalty(gap, running, variance))
            squares.append(matching_penalty(gap, gap, variance))
    exact = (running.square().sum(-1) / variance).mean()
    torch.testing.assert_close(torch.stack(penalties).mean(), exact, rtol=1e-10, atol=0)
    assert torch.stack(squares).mean() > 1.01 * exact


def reference_terms(model: nn.Module, data: Drawn, rows: np.ndarray, count: int) -> float:
    """Write the penalty of a step in class 1 from its definition, with the modules' outputs taken by hand."""
    images, labels = all_images(data)
    has_artifact = torch.from_numpy(data.has_artifact)
    inside = labels == 1
    hidden, total = images.double(), 0.0
    poolings = [lambda maps: maps.mean((2, 3)), lambda maps: maps.amax((2, 3))]
    outputs = []
    for block in model.blocks:  # the stages: before each max pooling, and the last output
        for module in block:
            hidden = module(hidden.clone())
            if isinstance(module, nn.ReLU):
                outputs.append(hidden)
    outputs.append(hidden)
    for output in outputs:
        for pool in poolings:
            features = pool(output)
            running = features[inside & has_artifact].mean(0) - features[inside & ~has_artifact].mean(0)
            variance = features[inside].var(0).sum()
            gap = features[rows[:count]].mean(0) - features[rows[count:]].mean(0)
            total += max(0.0, float(gap @ running / variance)) / len(poolings) / len(outputs)
    return total


def test_one_step_is_the_definition_in_float64() -> None:
    data = Drawn("patch", 48)
    with seeded(0):
        model = SmallNet().eval().double()

    class Doubled(TrainingImages):
        def batch(self, rows: object) -> Tensor:
            return super().batch(rows).double()  # type: ignore[arg-type]

    images = Doubled(data)
    objective = Match().objective(model, images)
    rng = np.random.default_rng(0)
    rows, group = objective.draw(np.arange(4), rng)
    assert group == 0
    assert (data.labels[rows] == 1).all()
    np.testing.assert_array_equal(data.has_artifact[rows], np.arange(2 * GROUP_SIZE) < GROUP_SIZE)
    before = {name: buffer.clone() for name, buffer in objective.named_buffers()}
    task = np.arange(4)
    logits, penalty = objective.terms(model, Step(task, rows, group), images.batch([*task, *rows]))
    torch.testing.assert_close(logits, model(images.batch(task)))
    with torch.no_grad():
        assert penalty.item() == pytest.approx(reference_terms(model, data, rows, GROUP_SIZE), rel=1e-9)

    # The running gap takes a tenth of this step's gap.
    stages = find_stages(model, images.batch([0, 1]))
    for index, values in enumerate(collect_pooled(model, [images.batch(rows)], stages)):
        gap = values[:GROUP_SIZE].mean(0) - values[GROUP_SIZE:].mean(0)
        expected = 0.9 * before[f"gap_{index}"][0] + 0.1 * gap
        torch.testing.assert_close(objective.get_buffer(f"gap_{index}")[0], expected)
        assert torch.equal(objective.get_buffer(f"variance_{index}"), before[f"variance_{index}"])


def test_mixed_precision_corrects_too() -> None:
    """Weights stay in float32; another result than in full precision shows that bfloat16 was used."""
    biased = world("patch")
    tuning = replace(TUNING["patch"], mixed_precision=True)
    matched = Match(strength=1.0, tuning=tuning).correct(biased.model, biased.train)
    assert {parameter.dtype for parameter in matched.parameters()} == {torch.float32}
    assert scores(matched, "patch")[0] < 0.12
    full = corrected("patch", "match")
    assert any(not torch.equal(a, b) for a, b in zip(matched.parameters(), full.parameters()))


@pytest.mark.parametrize(("kind", "is_mixed"), [("patch", True), ("low bits", False)])
def test_mixed_precision_is_automatic_on_gpus_above_the_low_bits(monkeypatch, kind: Kind, is_mixed: bool) -> None:
    monkeypatch.setattr("hansfree.corrections.deep.base._has_bfloat16", lambda device: device == "cpu")  # as a GPU
    biased = world(kind)
    found, expected = (
        Match(tuning=replace(TUNING[kind], epochs=1, mixed_precision=option)).correct(biased.model, biased.train)
        for option in ("auto", is_mixed)
    )
    assert all(map(torch.equal, found.parameters(), expected.parameters()))


def test_mixed_precision_is_off_where_nothing_is_known(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", {"cuda:0": (7, 5), "cuda:1": (8, 6)}.__getitem__)
    assert [_has_bfloat16(device) for device in ("cpu", "cuda:0", "cuda:1")] == [False, False, True]
    model, train = world("patch").model, world("patch").train
    images, labels = all_images(train)
    plain = TensorDataset(images, labels, torch.from_numpy(train.has_artifact))
    assert is_above_low_bits(model, TrainingImages(train))
    assert not is_above_low_bits(model, TrainingImages(plain))  # their normalisation is not known
    assert not is_above_low_bits(model, TrainingImages(Drawn("patch", 20)))  # too few of each kind
    without_maps = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIZE * SIZE, 2))
    assert not is_above_low_bits(without_maps, TrainingImages(train))
