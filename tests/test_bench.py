import itertools
import json

import pytest
import torch
from torch import nn
from torch.func import jvp
from typer.testing import CliRunner

from hansfree.bench import Bench, Ratio
from hansfree.bench.ours import walk
from hansfree.bench.paper import FOLLOWING, PaperTraining
from hansfree.bench.race import Race
from hansfree.cavs import SignalCAV
from hansfree.cli import app
from hansfree.corrections import RRClArC
from hansfree.errors import OptionError
from hansfree.models import ARCHITECTURES, build_model
from hansfree.splitting import exact_forward_mode, split
from hansfree.training import FineTuning, HeadBatch, WeightedHead

CLASSES, IMAGES = 3, 5
TINY = Bench(models=("demo",), images=32, batch=16, size=32, repeats=2)


@pytest.fixture
def model():
    return build_model("demo", classes=CLASSES).double().eval()


@pytest.fixture
def images():
    return torch.randn(IMAGES, 3, 32, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture
def direction():
    return torch.randn(128, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


LABELS = torch.arange(IMAGES) % CLASSES


def paper(model, direction, strength=0.7):
    cut = split(model, ARCHITECTURES["demo"].layer)
    return PaperTraining(
        model, FOLLOWING["demo"], cut.trainable, direction, strength=strength, tuning=FineTuning(learning_rate=0.1)
    )


def our_gradients(model, images, direction, *, target, seed=0, strength=0.7):
    """Take the gradient of RR-ClArC's own objective, with values and tangents at the head's input."""
    cut = split(model, ARCHITECTURES["demo"].layer)
    with torch.no_grad():
        live = cut.trunk(images)
        spread = direction[None, :, None, None].expand_as(live[0])
        with exact_forward_mode():
            values, tangents = jvp(lambda a: cut.phi(a), live, (spread,))
    noise = torch.Generator().manual_seed(seed)
    batch = HeadBatch(values, tuple(t[None] for t in tangents), LABELS, LABELS.numpy(), noise, cut.trunk, cut.phi)
    parameters = cut.head_parameters()
    with exact_forward_mode():
        head = WeightedHead(cut.head_parts(), parameters)
        logits, penalty = RRClArC(SignalCAV(), target=target).forward(head, batch)
        loss = nn.functional.cross_entropy(logits, LABELS) + strength * penalty.mean()
    return torch.autograd.grad(loss, list(parameters.values()))


def test_the_papers_step_has_our_gradient_for_the_same_signs(model, images, direction):
    def signs(logits):
        return 2 * torch.randint(0, 2, logits.shape, generator=torch.Generator().manual_seed(0)).to(logits) - 1

    theirs = paper(model, direction)
    got = torch.autograd.grad(theirs.loss(images, LABELS, signs), theirs.trained)
    for ours, expected in zip(our_gradients(model, images, direction, target="random"), got, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-12)


def test_the_papers_gradient_over_all_signs_is_our_expected_one(model, images, direction):
    theirs = paper(model, direction)
    every = [torch.tensor(signs, dtype=torch.float64) for signs in itertools.product((-1, 1), repeat=CLASSES)]
    got = [torch.autograd.grad(theirs.loss(images, LABELS, lambda _, m=m: m), theirs.trained) for m in every]
    for ours, *expected in zip(our_gradients(model, images, direction, target="expected"), *got, strict=True):
        torch.testing.assert_close(ours, torch.stack(expected).mean(0), rtol=1e-9, atol=1e-12)


def test_the_papers_step_trains_the_head_only_and_leaves_nothing_behind(model, images, direction):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    theirs = paper(model, direction)
    theirs.step(images, LABELS)
    changed = {name for name, value in theirs.model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"classifier.weight", "classifier.bias"}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_pre_hooks for module in theirs.model.modules())


def test_the_papers_graph_stays_out_of_the_frozen_trunk(model, images, direction):
    theirs = paper(model, direction)
    reached = []
    trunk = theirs.model.features[:11]  # up to the layer, features.10
    for module in trunk:
        module.register_forward_hook(lambda module, inputs, output: reached.append(output.grad_fn))
    theirs.loss(images, LABELS, torch.sign)
    assert len(reached) == 11
    assert reached == [None] * 11


@pytest.mark.parametrize("name", ["demo", "resnet18", "efficientnet_b0", pytest.param("vgg16", marks=pytest.mark.slow)])
def test_what_enters_the_named_activation_is_the_layers_output(name):
    model = build_model(name, classes=2).eval()
    images = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    (expected, *_) = split(model, ARCHITECTURES[name].layer).trunk(images)
    entered = []
    following = FOLLOWING[name]
    model.get_submodule(following.module).register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0].clone()))
    with torch.no_grad():
        model(images)
    torch.testing.assert_close(entered[following.call], expected)


def test_every_model_has_its_activation():
    assert FOLLOWING.keys() == ARCHITECTURES.keys()


def test_a_path_is_multiplied_up_by_strengths_and_epochs(monkeypatch):
    # The clock is read at the start, when all is prepared, after each of the 4 epochs, and at the end: one second each.
    monkeypatch.setattr("hansfree.bench.ours.perf_counter", itertools.count(1).__next__)
    race = Race(TINY, "demo")
    finished = walk(race.model, race.layer, race.images, race.tuning, epochs_timed=4)
    prepared, once_per_head, epoch = 1, 1, 1
    assert finished.seconds == prepared + 22 * (once_per_head + 10 * epoch)


def test_a_whole_path_is_timed_from_start_to_end(monkeypatch):
    monkeypatch.setattr("hansfree.bench.ours.perf_counter", itertools.count(1).__next__)
    race = Race(TINY, "demo")
    assert walk(race.model, race.layer, race.images, race.tuning).seconds == 1


def test_a_large_head_is_given_two_batches_and_says_what_was_multiplied_up(monkeypatch):
    monkeypatch.setattr("hansfree.bench.race._LARGE_HEAD", 100)
    race = Race(Bench(models=("demo",), images=64, batch=16, size=32, repeats=1), "demo")
    ratios = race.ratios(lambda steps, *, total, label: iter(steps))
    assert all(ratio.value > 0 for ratio in ratios)
    about = race.about()
    assert (about["images"], about["our_strengths_timed"], about["our_epochs_timed"]) == (32, 1, 4)
    assert about["paper_steps"] == 2 * 10 * 22


def test_the_command_writes_every_ratio_with_its_range(tmp_path):
    out = tmp_path / "bench.json"
    options = [
        "--model",
        "demo",
        "--images",
        "32",
        "--batch",
        "16",
        "--size",
        "32",
        "--repeats",
        "2",
        "--out",
        str(out),
    ]
    result = CliRunner().invoke(app, ["bench", *options])
    assert result.exit_code == 0, result.output
    content = json.loads(out.read_text())
    about = content.pop("about")
    kinds = ("path_over_forward", "path_over_paper", "rr_step_over_vanilla_step")
    assert content.keys() == {f"demo.{kind}{end}" for kind in kinds for end in ("", ".low", ".high")}
    for kind in kinds:
        assert 0 < content[f"demo.{kind}.low"] <= content[f"demo.{kind}"] <= content[f"demo.{kind}.high"]
    assert about["models"]["demo"]["paper_steps_timed"] == 4
    assert "path_over_paper" in result.output


def test_a_ratio_is_the_median_of_its_turns():
    ratio = Ratio("demo.path_over_forward", (3.0, 1.0, 2.5))
    assert (ratio.value, ratio.low, ratio.high) == (2.5, 1.0, 3.0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"models": ("resnet8",)}, "Did you mean 'resnet18'"),
        ({"models": ()}, "needs a model"),
        ({"repeats": 0}, "needs a model and a repeat"),
        ({"images": 100, "batch": 64}, "multiple of the batch"),
        ({"images": 64, "batch": 64}, "at least two"),
    ],
)
def test_what_cannot_be_measured_is_refused(options, sentence):
    with pytest.raises(OptionError, match=sentence):
        Bench(**options)
