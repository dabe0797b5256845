"""Insert an artifact that is known only by artifact labels: transplants from artifact images onto other images.

Three kinds of transplant cover most artifacts: the *region* where the artifact is found, the change of the *color*
distribution (brightness, contrast, tint), and the *low bits* of the pixels. Which one carries the artifact is measured:
how much of the distance between artifact and non-artifact images, along the signal-CAVs of the network, it covers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hansfree.corrections.deep.images import Group, TrainingImages
from hansfree.corrections.deep.stages import Stage, collect_pooled, find_stages, recorded, whole_output
from hansfree.data import Artifact, Normalize
from hansfree.errors import DataError, SplitError

MIN_COVERAGE, MAX_COVERAGE = 0.5, 1.5  # of the distance between the groups: a transplant outside is not the artifact
AS_GOOD = 0.15  # of coverage: within it the less invasive insertion is preferred
MIN_DISTANCE = 3.0  # standard errors between artifact and non-artifact images
MAX_AREA = 0.3  # of the image: a larger transplant replaces the object itself
THRESHOLD = 0.4  # of a heatmap's maximum: where the artifact begins
LOW_BITS = 3
_MEASURED = 64  # images that the coverage is measured on


class NoTransplantError(DataError):
    """No transplant carries the artifact."""


class Insertion(ABC):
    """A way to put an artifact into images that do not have it."""

    kind: ClassVar[str]
    uses_donors: ClassVar[bool] = True  # whether pixels of artifact images are taken

    def masks(self, network: nn.Module, donors: Tensor) -> Tensor:
        """Return how much of each pixel of artifact images is transplanted, ``(n, 1 or height, 1 or width)``."""
        return donors.new_ones((len(donors), 1, 1))

    @abstractmethod
    def insert(self, images: Tensor, donors: Tensor, masks: Tensor, *, seed: int = 0) -> Tensor:
        """Return the images with the artifact of as many donors; all normalised."""


class Paste(Insertion):
    """Paste the pixels of the masks at the same place."""

    kind = "region"

    def insert(self, images: Tensor, donors: Tensor, masks: Tensor, *, seed: int = 0) -> Tensor:
        """Paste the donors' pixels where the masks are."""
        return torch.lerp(images, donors, masks[:, None].to(images))


class Region(Paste):
    """Paste the pixels where the artifact is found, with soft edges.

    The artifact is where the output of the first stages, along their signal-CAVs, exceeds that of non-artifact images
    of the class at the same position. What the class itself shows there is thus no part of it.
    """

    def __init__(self, network: nn.Module, images: TrainingImages, stages: Sequence[Stage], group: Group) -> None:
        self.stages = tuple(stages[:2])
        self.directions, self.means, self.spreads = {}, {}, {}
        with_it, without = (
            collect_pooled(network, images.all_batches(rows), self.stages) for rows in (group.with_it, group.without)
        )
        for stage, artifact, clean in zip(self.stages, with_it, without):
            self.directions[stage.name] = _discriminant(artifact[:, 1], clean[:, 1])  # of the max-pooled features
        totals: dict[str, Any] = {}
        for maps in (self._maps(network, batch) for batch in images.all_batches(group.without)):
            for name, values in maps.items():
                totals[name] = totals.get(name, 0) + torch.stack([values.sum(0), values.square().sum(0)]).double()
        for name, total in totals.items():
            mean, square = total / len(group.without)
            spread = (square - mean.square()).clamp_min(0).sqrt()
            overall = (square.mean() - mean.mean().square()).clamp_min(0).sqrt()
            self.means[name], self.spreads[name] = mean.float(), (spread + overall).float()

    @torch.no_grad()
    def _maps(self, network: nn.Module, images: Tensor) -> dict[str, Tensor]:
        device = next(network.parameters()).device
        with recorded(network, self.stages, whole_output) as maps:
            network(images.to(device))
        return {name: _on_grid(output @ self.directions[name], images).cpu() for name, output in maps.items()}

    def masks(self, network: nn.Module, donors: Tensor) -> Tensor:
        """Return masks with soft edges."""
        total = donors.new_zeros((len(donors), *donors.shape[2:]))
        for name, values in self._maps(network, donors).items():
            excess = ((values - self.means[name]) / self.spreads[name]).clamp_min(0)
            excess = excess / excess.flatten(1).amax(1).clamp_min(1e-9)[:, None, None]
            total += functional.interpolate(excess[:, None], donors.shape[2:], mode="bilinear")[:, 0]
        is_artifact = (total > THRESHOLD * total.flatten(1).amax(1)[:, None, None]).float()[:, None]
        grown = functional.max_pool2d(is_artifact, 3, stride=1, padding=1)
        return functional.avg_pool2d(grown, 3, stride=1, padding=1, count_include_pad=False)[:, 0]


class Color(Insertion):
    """Scale and shift each color channel."""

    kind = "color"
    uses_donors = False

    def __init__(self, scale: Tensor, shift: Tensor) -> None:
        self.scale, self.shift = scale, shift

    @classmethod
    def between(cls, images: TrainingImages, group: Group) -> Color:
        """Change mean and contrast as artifact images differ from non-artifact ones of the class."""
        means, spreads = zip(*(_color_statistics(images, rows) for rows in (group.with_it, group.without)))
        scale = (spreads[0] / spreads[1].clamp_min(1e-6))[:, None, None]
        return cls(scale, means[0][:, None, None] - scale * means[1][:, None, None])

    def insert(self, images: Tensor, donors: Tensor, masks: Tensor, *, seed: int = 0) -> Tensor:
        """Scale and shift the color channels."""
        changed: Tensor = images * self.scale.to(images) + self.shift.to(images)
        return changed


class LowBits(Insertion):
    """Replace the lowest bits of every pixel by those of an artifact image."""

    kind = "low bits"

    def __init__(self, transform: Normalize) -> None:
        self.transform = transform

    def insert(self, images: Tensor, donors: Tensor, masks: Tensor, *, seed: int = 0) -> Tensor:
        """Combine the high bits of the images with the low bits of the donors."""
        low = (1 << LOW_BITS) - 1
        own, other = (to_pixels(each, self.transform) for each in (images, donors))
        combined: Tensor = self.transform((own & (255 - low)) | (other & low))
        return combined.to(images.device)


class Given(Insertion):
    """Stamp the artifact itself: true counterfactual pairs. ``transform`` is how the images were normalised."""

    kind = "given"
    uses_donors = False

    def __init__(self, artifact: Artifact, transform: Normalize) -> None:
        self.artifact, self.transform = artifact, transform

    def insert(self, images: Tensor, donors: Tensor, masks: Tensor, *, seed: int = 0) -> Tensor:
        """Stamp each image with randomness of its own."""
        changed = [
            self.artifact.stamp(pixels, np.random.default_rng((seed, number)))[0]
            for number, pixels in enumerate(to_pixels(images, self.transform))
        ]
        return self.transform(np.stack(changed)).to(images.device)


@dataclass(frozen=True, eq=False)
class Measured:
    """An insertion and how well it stands for the artifact.

    ``coverage`` is the share of the distance between artifact and non-artifact images that it covers, the median over
    stages and poolings; ``area`` the mean part of an image that it replaces. ``distance`` is that of the groups on
    other images than the direction was fitted to, in standard errors: near zero for uninformative labels.
    """

    insertion: Insertion
    coverage: float
    area: float
    distance: float

    @property
    def is_usable(self) -> bool:
        """Whether the transplant is the artifact rather than something else, or the whole image."""
        covers = MIN_COVERAGE <= self.coverage <= MAX_COVERAGE and self.distance >= MIN_DISTANCE
        return covers and (self.area <= MAX_AREA or self.insertion.kind != "region")


def find_insertion(network: nn.Module, images: TrainingImages, stages: Sequence[Stage], artifact: int = 0) -> Measured:
    """Return the usable insertion whose coverage is nearest to 1, or the least invasive of those that are as good."""
    groups = [group for group in images.groups() if group.artifact == artifact]
    if not groups:
        raise NoTransplantError("No class has enough images both with and without the artifact to compare.")
    group = max(groups, key=lambda each: len(each.with_it))
    transform = getattr(images.dataset, "transform", None)
    kinds: list[Insertion] = [LowBits(transform)] if isinstance(transform, Normalize) else []
    kinds += [Color.between(images, group), Region(network, images, stages, group)]
    measured = [_measure(network, images, stages, group, insertion) for insertion in kinds]
    usable = [each for each in measured if each.is_usable] or measured
    misses = [abs(each.coverage - 1) for each in usable]
    return next(each for each, miss in zip(usable, misses) if miss <= min(misses) + AS_GOOD)


def is_above_low_bits(network: nn.Module, images: TrainingImages) -> bool:
    """Return whether every artifact is known to be in more than the low bits of pixels, which bfloat16 rounds."""
    transform = getattr(images.dataset, "transform", None)
    groups = {group.artifact: group for group in images.groups()}
    if not isinstance(transform, Normalize) or len(groups) < images.artifacts.shape[1]:
        return False
    try:
        stages = find_stages(network, images.batch([0, 1]).to(next(network.parameters()).device))
    except SplitError:
        return False
    measured = (_measure(network, images, stages, group, LowBits(transform)) for group in groups.values())
    return all(each.distance >= MIN_DISTANCE and each.coverage < MIN_COVERAGE for each in measured)


@torch.no_grad()
def _measure(
    network: nn.Module, images: TrainingImages, stages: Sequence[Stage], group: Group, insertion: Insertion
) -> Measured:
    count = min(_MEASURED, len(group.without), len(group.with_it))
    rng = np.random.default_rng(0)
    donors = images.batch(rng.choice(group.with_it, count, replace=False))
    plain = images.batch(rng.choice(group.without, count, replace=False))
    masks = insertion.masks(network, donors)
    features = []
    for batch in (plain, insertion.insert(plain, donors, masks), donors):
        features.append([pooled.cpu() for pooled in collect_pooled(network, [batch], stages)])
    shares, distances = [], []
    for clean, inserted, artifact in zip(*features):
        for pooling in range(clean.shape[1]):
            direction = _discriminant(artifact[:, pooling], clean[:, pooling])
            a, b, c = ((each[:, pooling] @ direction).mean() for each in (clean, inserted, artifact))
            shares.append(float((b - a) / (c - a).clamp_min(1e-9)))
            distances.append(_held_out_distance(artifact[:, pooling], clean[:, pooling]))
    return Measured(insertion, float(np.median(shares)), float(masks.mean()), float(np.median(distances)))


def _held_out_distance(artifact: Tensor, clean: Tensor) -> float:
    """Return the distance of the second halves along the direction of the first ones, in standard errors."""
    half = len(clean) // 2
    direction = _discriminant(artifact[:half], clean[:half])
    one, other = artifact[half:] @ direction, clean[half:] @ direction
    error = ((one.var() + other.var()) / len(other)).sqrt()
    return float((one.mean() - other.mean()) / error.clamp_min(1e-12))


def to_bytes(masks: Tensor) -> Tensor:
    """Return masks as uint8, a quarter of the memory."""
    return (255 * masks).round().to(torch.uint8)


def from_bytes(masks: Tensor) -> Tensor:
    """Return masks from 0 to 1."""
    return masks.float() / 255


def _discriminant(artifact: Tensor, clean: Tensor) -> Tensor:
    """Return the signal-CAV with each channel divided by its variance, so that steady channels count more."""
    variance = clean.var(0)
    return (artifact.mean(0) - clean.mean(0)) / (variance + 1e-3 * variance.mean()).clamp_min(1e-12)


def _on_grid(values: Tensor, images: Tensor) -> Tensor:
    """Return maps ``(n, height, width)``; tokens go on a grid of the images' shape, without leading class tokens."""
    if values.ndim == 3:
        return values
    height, width = images.shape[2:]
    rows = round(math.sqrt(values.shape[1] * height / width))
    columns = round(rows * width / height)
    if not 0 <= values.shape[1] - rows * columns < rows + columns:
        raise DataError(
            f"{values.shape[1]} tokens of images of {height} x {width} are on no known grid. Use Match instead."
        )
    return values[:, -rows * columns :].reshape(-1, rows, columns)


def _color_statistics(images: TrainingImages, rows: np.ndarray) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of each color channel."""
    count, total, squares = 0, torch.zeros(()), torch.zeros(())
    for batch in images.all_batches(rows):
        pixels = batch.movedim(1, -1).flatten(0, 2).double()
        count, total, squares = count + len(pixels), total + pixels.sum(0), squares + pixels.square().sum(0)
    mean = total / count
    return mean, (squares / count - mean.square()).clamp_min(0).sqrt()


def to_pixels(images: Tensor, transform: Normalize) -> np.ndarray:
    """Return normalised images as uint8, channels last."""
    scale, shift = torch.tensor(transform.std), torch.tensor(transform.mean)
    values = (images.detach().cpu().movedim(1, -1) * scale + shift).mul(255).round().clamp(0, 255)
    return values.to(torch.uint8).numpy()
