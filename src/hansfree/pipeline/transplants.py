"""Counterfactual images where no function inserts the artifact: transplants between labelled images.

Held-out images get the artifact of other held-out images, so that a run counts flips from artifact labels alone.
"""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from hansfree._internal.files import read_arrays, written_atomically
from hansfree._internal.hashing import fingerprint, fingerprint_model
from hansfree.corrections.deep import (
    MIN_GROUP,
    Color,
    Insertion,
    LowBits,
    Measured,
    Paste,
    TrainingImages,
    find_insertion,
    find_stages,
    from_bytes,
    to_bytes,
    to_pixels,
)
from hansfree.data import BiasedData, ImageDataset, Subset
from hansfree.errors import DataError, RunError, SplitError
from hansfree.reasons import Reason, ReasonCode

log = logging.getLogger(__name__)

_PARTS = ("train", "val", "test")


class Transplanted(ImageDataset):
    """Images with the artifact of one of the ``donors``; which one depends on the seed and the image's id.

    ``masks`` (uint8) hold how much of each pixel of each donor is transplanted.
    """

    def __init__(
        self, clean: ImageDataset, donors: ImageDataset, insertion: Insertion, masks: np.ndarray, *, seed: int = 0
    ) -> None:
        self.clean, self.donors, self.insertion, self.masks, self.seed = clean, donors, insertion, masks, seed
        self.labels, self.ids, self.class_names = clean.labels, clean.ids, clean.class_names
        self.has_artifact, self.transform = np.ones(len(clean), dtype=bool), clean.transform

    @property
    def fingerprint(self) -> str:
        """Everything that the examples depend on."""
        color = (self.insertion.scale, self.insertion.shift) if isinstance(self.insertion, Color) else ()
        arrays = fingerprint(self.insertion.kind, self.masks, *(each.numpy() for each in color))
        return f"Transplanted({self.clean.fingerprint}, {self.donors.fingerprint}, {arrays}, seed={self.seed})"

    def pixels(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the uint8 image with the artifact, and the pixels that changed."""
        image, key = self.clean.pixels(index)[0], int(self.ids[index])
        donor = int(np.random.default_rng((self.seed, key)).integers(len(self.donors)))
        own, other = (self.transform(each)[None] for each in (image, self.donors.pixels(donor)[0]))
        mask = from_bytes(torch.from_numpy(self.masks[donor]))[None]
        changed = to_pixels(self.insertion.insert(own, other, mask, seed=key), self.transform)[0]
        return changed, (changed != image).any(axis=-1)


@dataclass(frozen=True, eq=False)
class Transplants:
    """What is transplanted between the images of each split, found by the original model.

    ``coverage`` and ``area`` as in `Measured`; ``masks`` are those of the artifact images of each split.
    """

    key: str  # of the model and the images
    insertion: Insertion
    coverage: float
    area: float
    masks: dict[str, np.ndarray]

    def apply(self, data: BiasedData, *, seed: int) -> BiasedData:
        """Return the data with transplants in place of the natural artifact images of validation and test."""
        without = Subset(data.train, np.flatnonzero(~data.train.has_artifact))
        clean = (without, data.val_clean, data.test_clean)
        train, val, test = (
            Transplanted(images, donors, self.insertion, self.masks[part], seed=seed)
            for part, images, donors in zip(_PARTS, clean, _donors(data))
        )
        return replace(
            data,
            train_biased=train,
            val_biased=val,
            test_biased=test,
            is_inserted=True,
            is_localized=isinstance(self.insertion, Paste),
            has_masks=False,  # its location in training images is not known
            transplant=self.insertion.kind,
        )

    def describe(self) -> str:
        """Return what is transplanted, and how well it stands for the artifact."""
        return (
            f"{self.insertion.kind}, covering {100 * self.coverage:.0f} % of the distance between images with and "
            f"without the artifact, and {100 * self.area:.0f} % of the image"
        )

    def write(self, path: Path) -> None:
        """Write them to the run directory, so that a resumed run uses the same ones."""
        arrays = {f"masks_{part}": masks for part, masks in self.masks.items()}
        if isinstance(self.insertion, Color):
            arrays |= {"scale": self.insertion.scale.numpy(), "shift": self.insertion.shift.numpy()}
        facts = {"key": self.key, "kind": self.insertion.kind, "coverage": self.coverage, "area": self.area}
        arrays |= {name: np.array(value) for name, value in facts.items()}
        with written_atomically(path) as temporary:
            np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]


def find_transplants(
    model: nn.Module, data: BiasedData, *, device: str, stored: Path | None = None
) -> Transplants | None:
    """Return how the artifact is transplanted; None where no transplant stands for it, or too few images carry it."""
    donors = _donors(data)
    if min(map(len, donors)) < MIN_GROUP:
        return None
    sets = (data.train, data.val_biased, data.test_biased)
    key = fingerprint(fingerprint_model(model), *(each.fingerprint for each in sets))
    if stored is not None and stored.exists():
        try:
            found = _read(stored, data)
        except (KeyError, RunError):  # of another file, or none
            log.warning("%s is damaged, and is computed again.", stored)
        else:
            if found.key == key:
                return found
    network = copy.deepcopy(model).eval().to(device)
    images = TrainingImages.of(data.train)
    try:
        measured = find_insertion(network, images, find_stages(network, images.batch([0, 1]).to(device)))
    except (DataError, SplitError) as error:  # a network without maps, or too few images of each kind in a class
        log.info("No transplants: %s", error)
        return None
    if not measured.is_usable:
        return None
    masks = {part: _masks(network, measured, each) for part, each in zip(_PARTS, donors)}
    insertion = measured.insertion if isinstance(measured.insertion, Color | LowBits) else Paste()
    return Transplants(key, insertion, measured.coverage, measured.area, masks)


def _donors(data: BiasedData) -> tuple[ImageDataset, ...]:
    """Return the images with the artifact of each split; a held-out split with too few takes the other's."""
    val, test = data.val_biased, data.test_biased
    train = Subset(data.train, np.flatnonzero(data.train.has_artifact))
    return train, val if len(val) >= MIN_GROUP else test, test if len(test) >= MIN_GROUP else val


def shared_donors(data: BiasedData) -> Reason | None:
    """Return which held-out split takes the artifact images of the other one; None where each has enough."""
    for part, images in (("validation", data.val_biased), ("test", data.test_biased)):
        if len(images) < MIN_GROUP:
            return Reason(ReasonCode.SHARED_DONORS, {"part": part, "count": len(images)})
    return None


def _masks(network: nn.Module, measured: Measured, images: ImageDataset) -> np.ndarray:
    """Return the masks of the images with the artifact."""
    batches = TrainingImages.of(images).all_batches(np.arange(len(images)))
    return torch.cat([to_bytes(measured.insertion.masks(network, batch)) for batch in batches]).numpy()


def _read(path: Path, data: BiasedData) -> Transplants:
    arrays = read_arrays(path)
    kind = str(arrays["kind"])
    insertion: Insertion = Paste()
    if kind == Color.kind:
        insertion = Color(torch.from_numpy(arrays["scale"]), torch.from_numpy(arrays["shift"]))
    elif kind == LowBits.kind:
        insertion = LowBits(data.train.transform)
    masks = {part: arrays[f"masks_{part}"] for part in _PARTS}
    return Transplants(str(arrays["key"]), insertion, float(arrays["coverage"]), float(arrays["area"]), masks)
