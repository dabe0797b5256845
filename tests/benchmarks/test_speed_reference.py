"""The paper's steps compute what ours compute, and nothing that they could do without."""

from __future__ import annotations

import itertools

import pytest
import torch
from benchmarks.speed.reference import ACTIVATIONS, PaperRRR, PaperTraining
from torch import nn
from torch.func import jvp

from hansfree.cavs import SignalCAV
from hansfree.corrections import RRR, RRClArC
from hansfree.corrections.training import FineTuning, FunctionalHead, HeadBatch
from hansfree.data.examples import Example
from hansfree.models import ARCHITECTURES, build_model
from hansfree.models.surgery import exact_forward_mode, split

CLASSES, IMAGES, STRENGTH = 3, 5, 0.7
LABELS = torch.arange(IMAGES) % CLASSES
DEMO = ARCHITECTURES["demo"]


def drawn(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def model():
    return build_model("demo", classes=CLASSES).double().eval()


images, direction = drawn(IMAGES, 3, 32, 32, seed=0), drawn(128, seed=1)
masks = drawn(IMAGES, 32, 32, seed=2) < -0.8


def paper(model, kind):
    cut = split(model, DEMO.layer)
    options = {"strength": STRENGTH, "tuning": FineTuning(learning_rate=0.1)}
    if kind is PaperRRR:
        return PaperRRR(model, cut.trainable, **options)
    return PaperTraining(model, ACTIVATIONS["demo"], cut.trainable, direction, **options)


def our_gradients(model, method):
    """Take the gradient of a method's own objective, with values and tangents at the head's input."""
    cut = split(model, DEMO.layer)
    with torch.no_grad(), exact_forward_mode():
        live = cut.trunk(images)
        spread = direction[None, :, None, None].expand_as(live[0])
        values, tangents = jvp(lambda a: cut.phi(a), live, (spread,))
    noise = torch.Generator().manual_seed(0)
    batch = HeadBatch(values, tuple(t[None] for t in tangents), LABELS, LABELS.numpy(), noise, cut.trunk, cut.phi)
    if isinstance(method, RRR):
        batch = HeadBatch(values, (), LABELS, torch.arange(IMAGES).numpy(), noise, cut.trunk, cut.phi)
    parameters = cut.head_parameters()
    with exact_forward_mode():
        logits, penalty = method.loss_terms(FunctionalHead(cut.head_parts(), parameters), batch)
        loss = nn.functional.cross_entropy(logits, LABELS) + STRENGTH * penalty.mean()
    return torch.autograd.grad(loss, list(parameters.values()))


def assert_equal(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_the_papers_gradient_is_ours_for_the_same_signs_and_over_all_signs(model):
    def signs(logits):
        return 2 * torch.randint(0, 2, logits.shape, generator=torch.Generator().manual_seed(0)).to(logits) - 1

    theirs = paper(model, PaperTraining)
    found = torch.autograd.grad(theirs.loss(images, LABELS, signs), theirs.trained)
    assert_equal(our_gradients(model, RRClArC(SignalCAV(), target="random")), found)
    every = [torch.tensor(signs, dtype=torch.float64) for signs in itertools.product((-1, 1), repeat=CLASSES)]
    found = [torch.autograd.grad(theirs.loss(images, LABELS, lambda _, m=m: m), theirs.trained) for m in every]
    means = [torch.stack(each).mean(0) for each in zip(*found)]
    assert_equal(our_gradients(model, RRClArC(SignalCAV(), target="expected")), means)


def test_the_papers_rrr_has_our_gradient(model):
    theirs = paper(model, PaperRRR)
    found = torch.autograd.grad(theirs.loss(images, LABELS, masks), theirs.trained)
    examples = [Example(image, int(label), True, mask, 0) for image, label, mask in zip(images, LABELS, masks)]
    assert_equal(our_gradients(model, RRR(examples)), found)


@pytest.mark.parametrize("kind", [PaperTraining, PaperRRR])
def test_the_papers_step_trains_the_head_only_and_leaves_nothing_behind(kind, model):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    theirs = paper(model, kind)
    theirs.step(images, LABELS, *([masks] if kind is PaperRRR else []))
    changed = {name for name, value in theirs.model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"classifier.weight", "classifier.bias"}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_pre_hooks for module in theirs.model.modules())


@pytest.mark.parametrize("name", ["demo", "resnet18", "efficientnet_b0", pytest.param("vgg16", marks=pytest.mark.slow)])
def test_what_enters_the_named_activation_is_the_layers_output(name):
    model = build_model(name, classes=2).eval()
    (expected, *_) = split(model, ARCHITECTURES[name].layer).trunk(images[:1].float())
    entered = []
    following = ACTIVATIONS[name]
    model.get_submodule(following.module).register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0].clone()))
    with torch.no_grad():
        model(images[:1].float())
    torch.testing.assert_close(entered[following.call], expected)
