"""Insertions carry the artifact onto other images, the right kind is found, and training on the pairs removes it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset
from torchvision.models import VisionTransformer

from hansfree._internal.hashing import seeded
from hansfree.corrections.deep import Transplant
from hansfree.corrections.deep.base import Step
from hansfree.corrections.deep.images import TrainingImages
from hansfree.corrections.deep.insertion import Color, LowBits, Measured, Region, find_insertion
from hansfree.corrections.deep.stages import find_stages
from hansfree.errors import DataError
from tests.corrections.deep.examples import (
    HALF,
    Drawn,
    Kind,
    SmallNet,
    all_images,
    insert,
    world,
)


def to_pixels(images: Tensor) -> np.ndarray:
    """Undo the normalisation, in float64."""
    return ((images.double() * 0.25 + 0.5) * 255).movedim(1, -1).numpy()


@pytest.mark.parametrize(("kind", "found"), [("patch", "region"), ("brightness", "color"), ("low bits", "low bits")])
def test_the_kind_of_artifact_is_found(kind: Kind, found: str) -> None:
    biased = world(kind)
    images = TrainingImages(biased.train)
    measured = find_insertion(biased.model, images, find_stages(biased.model, images.batch([0, 1])))
    assert measured.insertion.kind == found
    assert measured.is_usable
    assert 0.7 < measured.coverage < 1.3


def test_the_region_is_the_patch() -> None:
    biased = world("patch")
    images = TrainingImages(biased.train)
    (group,) = images.groups()
    region = Region(biased.model, images, find_stages(biased.model, images.batch([0, 1])), group)
    rows = group.with_it[:50]
    masks = region.masks(biased.model, images.batch(rows))
    assert 0 <= masks.min() <= masks.max() <= 1
    truth = biased.train.batch(rows).mask
    found = masks > 0.5
    recall = (found & truth).sum() / truth.sum()
    precision = (found & truth).sum() / found.sum()
    assert recall > 0.95
    assert precision > 0.4  # the mask is grown by the receptive field: 4 x 4 becomes 6 x 6 pixels

    clean, _ = all_images(Drawn("patch", 50, inserted="none", seed=2))
    pasted = region.insert(clean, images.batch(rows), masks)
    assert torch.equal(pasted[:, :, 10:, 10:], clean[:, :, 10:, 10:])
    assert np.abs(to_pixels(pasted)[:, :3, :3] - 250).max() < 1


def test_tokens_are_put_on_their_grid() -> None:
    """A transformer's class token is no place in the image, and the masks of images do not mix."""
    data = Drawn("patch", 64)
    with seeded(0):
        model = VisionTransformer(16, 4, 2, 2, 12, 24, num_classes=2).eval()
    images = TrainingImages(data)
    (group,) = images.groups()
    region = Region(model, images, find_stages(model, images.batch([0, 1])), group)
    donors = images.batch(group.with_it)
    masks = region.masks(model, donors)
    assert masks.shape == (len(donors), 16, 16)
    torch.testing.assert_close(region.masks(model, donors[3:4]), masks[3:4])
    inside, outside = masks[:, :4, :4].mean(), masks[:, 8:, 8:].mean()
    assert inside > outside + 0.3


def test_color_is_the_affine_change() -> None:
    """Groups of the same images, so that only rounding is left."""
    (clean, _), (changed, _) = (all_images(Drawn("brightness", 40, inserted=which)) for which in ("none", "all"))
    bits = torch.arange(80) >= 40
    images = TrainingImages(TensorDataset(torch.cat([clean, changed]), torch.ones(80, dtype=torch.long), bits))
    (group,) = images.groups()
    new = Drawn("brightness", 20, inserted="none", seed=3)
    before = all_images(new)[0]
    after = Color.between(images, group).insert(before, before, torch.ones(20, 16, 16))
    truth = np.stack([insert("brightness", image)[0] for image in new.plain])
    assert np.abs(to_pixels(after) - truth).max() < 1  # gray level of 255


def test_low_bits_are_carried_and_nothing_else() -> None:
    clean = Drawn("low bits", 20, inserted="none", seed=1)
    donors = Drawn("low bits", 20, inserted="all", seed=2)
    inserted = LowBits(HALF).insert(all_images(clean)[0], all_images(donors)[0], torch.ones(20, 16, 16))
    pixels = to_pixels(inserted)
    np.testing.assert_allclose(pixels, pixels.round(), atol=1e-3)
    pixels = pixels.round().astype(np.uint8)
    truth = np.stack([insert("low bits", image)[0] for image in clean.plain])
    np.testing.assert_array_equal(pixels, truth)


@pytest.mark.parametrize(
    ("coverage", "area", "distance", "is_usable"),
    [(1.0, 0.1, 9, True), (0.3, 0.1, 9, False), (3.1, 0.1, 9, False), (1.0, 0.9, 9, False), (1.0, 0.1, 1, False)],
)
def test_what_is_not_the_artifact_is_not_usable(coverage: float, area: float, distance: float, is_usable: bool) -> None:
    """A transplant that goes far beyond the artifact is another change, and groups that do not differ show nothing."""
    region = Region.__new__(Region)
    assert Measured(region, coverage, area, distance).is_usable == is_usable
    assert Measured(LowBits(HALF), coverage, 1.0, 9.0).is_usable == (0.5 <= coverage <= 1.5)


def test_the_penalty_is_the_squared_difference_of_a_pairs_logits_and_the_loss_of_the_pasted_image() -> None:
    data = Drawn("patch", 48)
    images = TrainingImages(data)
    with seeded(0):
        model = SmallNet().eval()
    method = Transplant(insert=lambda image, rng: insert("patch", image))
    objective = method.objective(model, images)
    task = np.arange(0, 16, 2)  # class 0
    extra, seed = objective.draw(task, np.random.default_rng(0))
    assert len(extra) == 0, "a function needs no artifact images"
    logits, penalty = objective.terms(model, Step(task, extra, seed), images.batch([*task, *extra]))
    total = 0.0
    for row in task[:6]:
        pair = torch.stack([data.transform(image) for image in (data.plain[row], insert("patch", data.plain[row])[0])])
        plain, changed = model(pair).detach().double()
        total += float((plain - changed).square().sum() - changed.log_softmax(0)[data.labels[row]])
    assert penalty.item() == pytest.approx(total / 6, rel=1e-4)
    torch.testing.assert_close(logits, model(images.batch(task)))


def test_of_several_artifacts_each_is_inserted_from_its_own_images() -> None:
    rng = np.random.default_rng(0)
    batch = Drawn("patch", 240, inserted="none").batch(range(240))
    bits = (batch.label.numpy() == 1)[:, None] & (rng.random((240, 2)) < 0.4)
    images = batch.image.clone()
    images[bits[:, 0], :, :4, :4] = 3.0
    images[bits[:, 1], :, 12:, 12:] = -3.0
    known = TrainingImages(TensorDataset(images, batch.label, torch.from_numpy(bits)))
    with seeded(0):
        model = SmallNet().eval()
    objective = Transplant().objective(model, known)
    seen = set()
    for seed in range(20):
        rows, choice = objective.draw(np.arange(16), np.random.default_rng(seed))
        which = choice % 2
        seen.add(which)
        assert bits[rows, which].all()
    assert seen == {0, 1}


class Blind(SmallNet):
    """Sees the artifact in no layer, so that no transplant can be measured."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images * 0)


def test_an_artifact_that_nothing_carries_is_refused() -> None:
    model: nn.Module = Blind().eval()
    with pytest.raises(DataError, match=r"No transplant carries the artifact: .*covers .*Use Match instead"):
        Transplant().correct(model, Drawn("patch", 64))


def test_a_function_on_pixels_needs_to_know_the_normalisation() -> None:
    batch = Drawn("patch", 64).batch(range(64))
    plain = TensorDataset(batch.image, batch.label, batch.has_artifact)
    with pytest.raises(DataError, match=r"`transform` of type hansfree\.Normalize"):
        Transplant(insert=lambda image, rng: image).correct(SmallNet().eval(), plain)
