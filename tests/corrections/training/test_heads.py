"""The training loop: a step is a step, many strengths at once are many runs, and a divergence is a result."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hansfree.activations import Activations, Features, compute_features, cut_at
from hansfree.corrections import RRR, LatentCorrection, RRClArC, Vanilla
from hansfree.corrections.training import (
    FineTuning,
    FunctionalHead,
    HeadBatch,
    Heads,
    TrainedHead,
    group_strengths,
    head_loop,
)
from hansfree.errors import DivergedError
from hansfree.metrics import predict_classes
from hansfree.models.surgery import forward_mode, split
from tests.corrections.examples import CASES, Case, ConvHead, MLPHead, TinyImages, collect, fit_cav, gradients
from tests.corrections.reference import rr_loss

DROPOUT = Case(lambda: MLPHead(dropout=0.4), "features.0", "features.0")
DATA = TinyImages(20)


class Scene:
    def __init__(self, case: Case = CASES["mlp"]) -> None:
        self.case = case
        self.model: nn.Module = case.model()
        self.activations: Activations = collect(case, self.model, DATA)
        self.cav = fit_cav(self.activations)
        self.cut = cut_at(self.model, self.activations)

    def train(self, method: LatentCorrection, strengths: list[float], **options: Any) -> list[TrainedHead]:
        return list(method.train(self.cut, self.activations, strengths, **options))

    def rr(self, tuning: FineTuning, **options: Any) -> RRClArC:
        return RRClArC(self.cav, tuning=tuning, **options)


def close(first: TrainedHead, second: TrainedHead, **tolerance: float) -> None:
    torch.testing.assert_close(first.state, second.state, **(tolerance or {"rtol": 1e-4, "atol": 1e-6}))


def moved(scene: Scene, head: TrainedHead) -> float:
    return max(
        float((value - scene.model.get_parameter(key).detach()).abs().max()) for key, value in head.state.items()
    )


METHODS = {
    "expected": lambda scene, tuning: scene.rr(tuning),
    "random": lambda scene, tuning: scene.rr(tuning, target="random"),
    "cosine": lambda scene, tuning: scene.rr(tuning, target=0, norm="cosine"),
    "two directions": lambda scene, tuning: RRClArC(fit_cav(scene.activations, 2), tuning=tuning),
    "rrr": lambda scene, tuning: RRR(DATA, tuning=tuning),
}


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("name", METHODS)
def test_one_stacked_run_is_many_separate_ones_also_with_dropout(name: str, optimizer: Any) -> None:
    scene, strengths = Scene(DROPOUT), [0.0, 0.1, 3.0]
    tuning = FineTuning(optimizer=optimizer, learning_rate=0.01, epochs=2, batch_size=8)
    method = METHODS[name](scene, tuning)
    stacked = scene.train(method, strengths)
    assert [head.strength for head in stacked] == strengths
    for head, strength in zip(stacked, strengths):
        (alone,) = scene.train(method, [strength])
        close(head, alone)
        assert moved(scene, head) > 1e-3
    with pytest.raises(AssertionError):
        close(stacked[0], stacked[2])


def test_heads_that_are_too_large_are_trained_one_by_one_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, strengths = Scene(DROPOUT), [0.0, 0.5, 2.0]
    method = scene.rr(FineTuning(learning_rate=0.05, epochs=2, batch_size=8))
    stacked = scene.train(method, strengths)
    sizes: list[int] = []
    original = Heads.__init__

    def counting(self: Heads, cut: Any, count: int, device: str, **options: Any) -> None:
        sizes.append(count)
        original(self, cut, count, device, **options)

    monkeypatch.setattr(Heads, "__init__", counting)
    monkeypatch.setattr(head_loop, "_STACKED_BYTES", 1)
    stream = method.train(scene.cut, scene.activations, strengths)
    first = next(stream)
    assert sizes == [1], "a head comes as soon as it is trained"
    one_by_one = [first, *stream]
    assert sizes == [1, 1, 1]
    one_head = 4 * sum(parameter.numel() for parameter in scene.cut.head_parameters().values())
    monkeypatch.setattr(head_loop, "_STACKED_BYTES", 2 * one_head)
    in_pairs = scene.train(method, strengths)
    assert sizes == [1, 1, 1, 2, 1]
    for first, second, third in zip(stacked, one_by_one, in_pairs):
        close(first, second)
        close(first, third)


def test_memory_of_a_validation_does_not_grow_with_its_images() -> None:
    """Logits of one batch are there at a time: of 22 heads on ImageNet all together would take 23 GB."""
    scene = Scene()
    features = compute_features(scene.cut, scene.activations)
    heads = Heads(scene.cut, 22, "cpu")
    expected = [predict_classes(each) for each in heads.logits(features).numpy()]
    found, finite = heads.predictions(features)
    assert np.array_equal(found, expected)
    assert finite.all()
    wide, classes = nn.Linear(4, 1000), 1000
    cut = SimpleNamespace(
        head_parts=lambda: SimpleNamespace(whole=wide, stages=()),
        head_parameters=lambda: dict(wide.named_parameters()), head=wide, eval_mode=wide.eval,
    )  # fmt: skip
    heads = Heads(cut, 22, "cpu")  # type: ignore[arg-type]

    def peak(images: int) -> int:
        values = np.broadcast_to(np.ones((1, 4), np.float32), (images, 4))
        many = Features((values,), (), np.zeros(images, dtype=np.int64), 1)
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        before = _memory("VmRSS")
        heads.predictions(many)
        return _memory("VmHWM") - before

    peak(1024)  # the allocator keeps memory of the first call
    some, most = (min(peak(images) for _ in range(3)) for images in (1024, 8192))  # it only ever adds to a peak
    at_once = 4 * 22 * classes * (8192 - 1024)
    assert most - some < at_once / 10


def _memory(name: str) -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])


def test_heads_at_their_minimum_stay_together_for_each_starts_from_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(head_loop, "_STACKED_BYTES", 1)
    cut = Scene().cut
    assert group_strengths(cut, [0.0, 1.0], FineTuning()) == [[0.0], [1.0]]
    assert group_strengths(cut, [0.0, 1.0], FineTuning(optimizer="converged")) == [[0.0, 1.0]]


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        *((name, "sgd") for name in CASES),
        ("mlp", "adam"),
        ("convolution", "adam"),
        ("mlp", "momentum"),
        ("mlp", "balanced"),
    ],
)
def test_two_steps_are_the_paper_by_hand(name: str, optimizer: Any) -> None:
    """Cross-entropy plus lambda times the mean of Eq. 5 over the signs, through the whole model in float64."""
    scene, strength = Scene(CASES[name]), 0.7
    options = {"momentum": {"momentum": 0.9}, "balanced": {"balanced": True}}.get(optimizer, {"optimizer": optimizer})
    tuning = FineTuning(**options, learning_rate=0.01, epochs=2, batch_size=100)
    (ours,) = scene.train(scene.rr(tuning), [strength])

    whole = scene.case.model().double()
    parameters = {key: whole.get_parameter(key) for key in scene.cut.trainable}
    rules = {"adam": torch.optim.Adam, "momentum": partial(torch.optim.SGD, momentum=0.9)}
    step = rules.get(optimizer, torch.optim.SGD)(parameters.values(), lr=0.01)
    images, labels = DATA.images.double(), torch.from_numpy(DATA.labels)
    h = torch.from_numpy(scene.cav.directions_[0] * scene.cav.scale_[0])
    for _ in range(2):
        penalty = sum(rr_loss(whole, scene.case, images, m, h) for m in torch.eye(3).double())
        wrong = functional.cross_entropy(whole(images), labels, reduction="none")
        if optimizer == "balanced":  # every class counts the same
            wrong = torch.stack([wrong[labels == label].mean() for label in range(3)])
        loss = wrong.mean() + strength * penalty.mean()
        for key, gradient in gradients(loss, parameters).items():
            parameters[key].grad = gradient
        step.step()
    for key, value in ours.state.items():
        before = scene.model.get_parameter(key).double()
        taken, expected = value.double() - before, parameters[key].detach() - before
        torch.testing.assert_close(taken, expected, rtol=1e-3, atol=1e-3 * expected.abs().max().item() + 1e-7)


def test_every_image_is_seen_once_per_epoch_and_every_step_draws_anew() -> None:
    scene = Scene()

    def watched(seed: int) -> tuple[list[np.ndarray], list[tuple[float, float]]]:
        seen: list[np.ndarray] = []
        drawn: list[tuple[float, float]] = []

        class Watching(Vanilla):
            def loss_terms(self, head: FunctionalHead, batch: HeadBatch) -> tuple[Tensor, Tensor | None]:
                np.testing.assert_array_equal(batch.labels.numpy(), DATA.labels[batch.rows])
                seen.append(batch.rows)
                # what dropout draws from, and what a method draws from
                drawn.append((torch.rand(()).item(), torch.rand((), generator=batch.noise).item()))
                return super().loss_terms(head, batch)

        scene.train(Watching(tuning=FineTuning(epochs=2, batch_size=8, seed=seed)), [0.0])
        return seen, drawn

    seen, drawn = watched(0)
    assert [len(rows) for rows in seen] == [8, 8, 4] * 2
    epochs = [np.concatenate(seen[:3]), np.concatenate(seen[3:])]
    for rows in epochs:
        np.testing.assert_array_equal(np.sort(rows), np.arange(20))
    assert not np.array_equal(*epochs)
    assert len(set(drawn)) == 6
    assert watched(0)[1] == drawn
    assert set(watched(1)[1]).isdisjoint(drawn)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_strength_that_diverges_is_recorded_and_spoils_no_other(
    optimizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(CASES["convolution"])
    method = scene.rr(FineTuning(optimizer=optimizer, learning_rate=0.05, epochs=3, batch_size=8))
    strengths = [0.0, 1e12, 1.0, 3e38, 1e300]
    with caplog.at_level(logging.WARNING):
        found = scene.train(method, strengths, watch=lambda heads: heads.are_finite())
    finite = {head.strength: head.is_finite for head in found}
    assert finite[0.0]
    assert finite[1.0]
    assert not finite[1e300]
    if optimizer == "sgd":  # Adam's steps have a size of their own, so that a huge strength alone is no harm
        assert not finite[1e12]
        assert not finite[3e38]
    assert {head.strength for head in found if not head.history[-1]} == {s for s in strengths if not finite[s]}
    failed = ", ".join(f"{strength:g}" for strength in strengths if not finite[strength])
    assert caplog.messages == [f"rr-clarc diverged at strength {failed}."]
    for head in (found[0], found[2]):
        close(head, scene.train(method, [head.strength])[0])


@pytest.mark.parametrize("case", ["convolution", "mlp", "graph node"])
@pytest.mark.parametrize("target", ["expected", "all"])
def test_stable_steps_give_finite_heads_over_the_whole_grid(case: str, target: Any) -> None:
    """And leave heads that plain steps train well as they are."""
    scene, strengths = Scene(CASES[case]), [0.0, 0.01, 1.0, 1e2, 1e4, 1e8]
    norm = {} if target == "expected" else {"norm": "squared"}
    plain = FineTuning(learning_rate=0.01, epochs=6, batch_size=8)
    stable = scene.train(scene.rr(replace(plain, stable=True), target=target, **norm), strengths)
    assert all(head.is_finite for head in stable)
    for head, other in zip(stable[:2], scene.train(scene.rr(plain, target=target, **norm), strengths[:2])):
        close(head, other)


def test_stable_steps_drive_the_derivative_to_zero() -> None:
    """On one linear layer, where the curvature of the penalty is known."""
    scene, strengths = Scene(Case(ConvHead, "norm", "norm")), [0.0, 1e4, 1e8]
    heads = scene.train(scene.rr(FineTuning(learning_rate=0.01, epochs=25, batch_size=8, stable=True)), strengths)
    tangents = compute_features(scene.cut, scene.activations, scene.rr(FineTuning()).features(scene.activations))
    _, (tangent,) = tangents.rows(slice(0, len(tangents)), "cpu")
    name = next(name for name in heads[0].state if name.endswith("weight"))
    sizes = [float((tangent[0] @ head.state[name].T).square().sum(1).mean()) for head in heads]
    assert max(sizes[1:]) < 0.01 * sizes[0]


def test_a_method_without_strength_is_blamed_for_none(caplog: pytest.LogCaptureFixture) -> None:
    scene, wild = Scene(CASES["convolution"]), FineTuning(learning_rate=1e30, epochs=2, batch_size=8)
    (head,) = scene.train(Vanilla(tuning=wild), [0.0])
    assert not head.is_finite
    assert caplog.messages == ["vanilla diverged."]
    with pytest.raises(DivergedError) as caught:
        Vanilla(tuning=wild).correct(scene.model, scene.activations)
    assert str(caught.value) == "Vanilla diverged: the weights are not finite. Use a learning rate below 1e+30."
    with pytest.raises(DivergedError, match=r"Use a strength below 1e\+300 or a learning rate below 0\.05\."):
        scene.rr(replace(wild, learning_rate=0.05), strength=1e300).correct(scene.model, scene.activations)


@pytest.mark.parametrize("train_norm", [False, True])
def test_batch_norm_is_trained_on_request_and_keeps_its_statistics(train_norm: bool) -> None:
    scene = Scene(CASES["convolution"])
    scene.cut = split(scene.model, scene.activations.layer, train_norm=train_norm)
    (head,) = scene.train(scene.rr(FineTuning(learning_rate=0.1, epochs=2)), [1.0])
    before, after = scene.model.state_dict(), scene.cut.model_with(head.state, scene.model).state_dict()
    changed = {name for name in before if name.startswith("norm.") and not torch.equal(before[name], after[name])}
    assert changed == ({"norm.weight", "norm.bias"} if train_norm else set())


def test_the_watch_is_called_after_every_epoch_with_the_heads_of_that_epoch() -> None:
    scene = Scene()
    tuning = {"learning_rate": 0.05, "batch_size": 8}

    def watch(heads: Heads) -> list[dict[str, Tensor]]:
        return [heads.state(i) for i in range(heads.count)]

    found = scene.train(scene.rr(FineTuning(epochs=3, **tuning)), [0.0, 1.0], watch=watch)
    for head in found:
        assert len(head.history) == 3
        torch.testing.assert_close(head.history[-1], head.state, rtol=0, atol=0)
        (shorter,) = scene.train(scene.rr(FineTuning(epochs=2, **tuning)), [head.strength])
        torch.testing.assert_close(head.history[1], shorter.state, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", METHODS)
def test_training_on_another_device_takes_everything_there_and_leaves_the_cut(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device "meta" has no numbers, but like a GPU it refuses to meet tensors of the CPU."""
    monkeypatch.setitem(forward_mode._KINDS, "meta", lambda: True)
    monkeypatch.setattr(Heads, "are_finite", lambda self: [True] * self.count)
    monkeypatch.setattr(Heads, "state", lambda self, _number: {key: p.device for key, p in self.parameters.items()})
    scene = Scene(CASES["convolution"])
    method = METHODS[name](scene, FineTuning(device="meta", epochs=1, batch_size=8))
    for head in scene.train(method, [0.0, 1.0]):
        assert {device.type for device in head.state.values()} == {"meta"}
    for part in (scene.cut.trunk, scene.cut.phi, scene.cut.head):
        assert {tensor.device.type for tensor in [*part.parameters(), *part.buffers()]} <= {"cpu"}
