"""Images with an artifact that was cut out of others: pairs where the artifact cannot be drawn."""

from __future__ import annotations

import numpy as np

from hansfree.datasets.base import ExampleSet
from hansfree.errors import DataError, OptionError
from hansfree.fingerprints import fingerprint


class Pasted(ExampleSet):
    """Every image of ``clean`` with the artifact of one of the ``donors``, at the place where the donor has it.

    Which donor an image gets depends on the seed and the image's id only.

    Args:
        clean: images without the artifact.
        donors: images with it.
        masks: bool, (donors, height, width): the pixels of each donor that are pasted.
    """

    def __init__(self, clean: ExampleSet, donors: ExampleSet, masks: np.ndarray, *, seed: int = 0) -> None:
        if seed < 0:
            raise OptionError(f"A seed is 0 or more, not {seed}.")
        if clean.has_artifact.any() or not donors.has_artifact.all():
            raise DataError("The artifact is cut out of images that carry it, and pasted onto images that do not.")
        if not len(clean) or not len(donors):
            raise DataError(f"Pasting needs images: {len(clean)} clean ones and {len(donors)} donors were given.")
        if masks.dtype != bool or masks.ndim != 3 or len(masks) != len(donors):
            raise DataError(
                f"{len(donors)} donors need as many masks, bool of shape ({len(donors)}, height, width), not "
                f"{masks.dtype} of {masks.shape}."
            )
        self.clean, self.donors, self.masks, self.seed = clean, donors, masks, seed
        self.labels, self.ids = clean.labels, clean.ids
        self.is_relabelled = clean.is_relabelled
        self.has_artifact = np.ones(len(clean), dtype=bool)
        self.class_names, self.transform = clean.class_names, clean.transform

    @property
    def donor_ids(self) -> np.ndarray:
        """The ids of the images whose artifact each one got."""
        return self.donors.ids[[self._donor(index) for index in range(len(self))]]

    @property
    def fingerprint(self) -> str:
        """Everything that the examples depend on."""
        return (
            f"Pasted({self.clean.fingerprint}, {self.donors.fingerprint}, {fingerprint(self.masks)}, seed={self.seed})"
        )

    def pixels(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the uint8 image with the pasted artifact, and the pixels that were pasted."""
        donor = self._donor(index)
        image, (source, _), mask = self.clean.pixels(index)[0], self.donors.pixels(donor), self.masks[donor]
        if image.shape != source.shape or image.shape[:2] != mask.shape:
            raise DataError(
                f"Image, donor and mask need one size, but they are {image.shape}, {source.shape} and {mask.shape}."
            )
        return np.where(mask[..., None], source, image), mask.copy()

    def _donor(self, index: int) -> int:
        return int(np.random.default_rng((self.seed, int(self.ids[index]))).integers(len(self.donors)))
