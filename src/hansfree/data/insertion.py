"""Datasets that insert artifacts into images."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hansfree._internal.hashing import fingerprint
from hansfree.data.artifacts import Artifact, InsertFunction, as_artifact
from hansfree.data.examples import IMAGENET, ImageDataset, ImageSource, Normalize
from hansfree.errors import DataError, OptionError, check_count

_CHOICE = 0x57A3  # separates this random choice from others with the same seed


class WithArtifact(ImageDataset):
    """Insert an artifact into a share of the images; ``share=0`` is the clean set, ``share=1`` the biased one.

    Which images are chosen depends only on the seed and the source's ``id_range``: a larger share includes the choice
    of a smaller one, and a missing image changes the choice by at most one other. How the artifact looks in an image
    depends only on the seed and the image's id.

    Args:
        artifact: An artifact, or a function that inserts one (`InsertFunction`).
        share: Of the images in ``only_class`` (None: of all) that get the artifact.
        only_class: The biased class.
        elsewhere: Share of the images of the other classes that get it, too: counter-examples, as in natural biases.
        flip_share: Share of the images of the other classes that get it and the label ``only_class``, apart from
            those of ``elsewhere``; see ``is_relabelled``.

    Examples:
        >>> from hansfree.data import SyntheticLesions, Timestamp, WithArtifact
        >>> train = WithArtifact(SyntheticLesions(80), Timestamp(), share=0.5, only_class=0)
        >>> int(train.has_artifact.sum())
        10
    """

    def __init__(
        self,
        source: ImageSource,
        artifact: Artifact | InsertFunction,
        *,
        share: float,
        only_class: int | None = None,
        elsewhere: float = 0.0,
        flip_share: float = 0.0,
        seed: int = 0,
        transform: Normalize = IMAGENET,
    ) -> None:
        for name, value in (("share", share), ("elsewhere", elsewhere), ("flip_share", flip_share)):
            if not 0 <= value <= 1:
                raise OptionError(f"{name} is a part of the images, from 0 to 1, not {value!r}.")
        check_count("seed", seed, least=0)
        if elsewhere + flip_share > 1:
            raise OptionError(f"elsewhere + flip_share is more than all other images: {elsewhere} + {flip_share} > 1.")
        if only_class is None and (elsewhere or flip_share):
            raise OptionError("elsewhere and flip_share concern the classes other than only_class: give only_class.")
        if only_class is not None and not 0 <= only_class < len(source.class_names):
            known = ", ".join(f"{label} {name}" for label, name in enumerate(source.class_names))
            raise OptionError(f"There is no class {only_class!r} to insert the artifact into. Known: {known}.")
        self.source, self.artifact, self.transform = source, as_artifact(artifact), transform
        self.share, self.only_class, self.elsewhere, self.flip_share = share, only_class, elsewhere, flip_share
        self.seed = seed
        self.ids, self.class_names = source.ids, source.class_names
        self.labels = source.labels.copy()
        self.has_artifact = np.zeros(len(source), dtype=bool)

        order = _shuffled(source, seed)
        inside = np.ones(len(source), dtype=bool) if only_class is None else source.labels == only_class
        own, others = order[inside[order]], order[~inside[order]]
        self.has_artifact[own[: _count(share, own)]] = True
        if only_class is not None:
            # From both ends, so that neither choice depends on the size of the other.
            flipped = others[: _count(flip_share, others)]
            self.labels[flipped] = only_class
            self.is_relabelled[flipped] = True
            self.has_artifact[flipped] = True
            stop = max(len(others) - _count(elsewhere, others), len(flipped))
            self.has_artifact[others[stop:]] = True

    @property
    def fingerprint(self) -> str:
        """A key of everything that the examples depend on, for caches.

        Clean images do not depend on the artifact, so all biases share their cache.
        """
        if not self.has_artifact.any():
            return f"WithArtifact({self.source.fingerprint}, nothing, {self.transform!r})"
        return (
            f"WithArtifact({self.source.fingerprint}, {self.artifact!r}, share={self.share!r}, "
            f"only_class={self.only_class!r}, elsewhere={self.elsewhere!r}, flip_share={self.flip_share!r}, "
            f"seed={self.seed}, {self.transform!r})"
        )

    def pixels(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the uint8 image and the artifact's mask, which is empty for an image without it."""
        if self.has_artifact[index]:
            return self.artifact.insert(self.source, index, seed=self.seed)
        image = self.source.image(index)
        return image, np.zeros(image.shape[:2], dtype=bool)


def _shuffled(source: ImageSource, seed: int) -> np.ndarray:
    """Return the rows of ``source`` in a random order that does not change when others are missing."""
    known, places = source.id_range, source.ids - source.id_range.start
    row_of = np.full(len(known), -1)
    is_inside = (places >= 0) & (places < len(known))
    row_of[places[is_inside]] = np.flatnonzero(is_inside)
    shuffled = row_of[np.random.default_rng((seed, _CHOICE)).permutation(len(known))]
    rows = np.asarray(shuffled[shuffled >= 0])
    if len(rows) < len(source):
        raise DataError(f"The ids of a source are different numbers from {known.start} to {known.stop - 1}.")
    return rows


def _count(share: float, images: np.ndarray) -> int:
    """Return ``share`` of the images as a whole number, halves rounded up."""
    return int(np.floor(share * len(images) + 0.5))


class MultiArtifact(ImageDataset):
    """Insert one artifact per class; artifact labels and masks are those of one class.

    Args:
        artifacts: By biased class, of which a ``share`` gets its artifact.
        target_class: The class whose artifact ``has_artifact`` and the masks refer to.
    """

    def __init__(
        self,
        source: ImageSource,
        artifacts: Mapping[int, Artifact],
        *,
        target_class: int,
        share: float,
        seed: int = 0,
        transform: Normalize = IMAGENET,
    ) -> None:
        if target_class not in artifacts:
            raise OptionError(f"Class {target_class} has no artifact; known: {sorted(artifacts)}.")
        self._parts = {
            label: WithArtifact(source, artifact, share=share, only_class=label, seed=seed)
            for label, artifact in artifacts.items()
        }
        self.target_class, self.transform = target_class, transform
        self.ids, self.labels, self.class_names = source.ids, source.labels, source.class_names
        self.has_artifact = self._parts[target_class].has_artifact
        self.has_any = np.any([part.has_artifact for part in self._parts.values()], axis=0)  # any of the artifacts

    @property
    def fingerprint(self) -> str:
        """Everything that the examples depend on."""
        return f"{self.pixel_fingerprint}, target_class={self.target_class}"

    @property
    def pixel_fingerprint(self) -> str:
        """The same for every ``target_class``: one biased model serves all of them."""
        parts = ", ".join(part.fingerprint for part in self._parts.values())
        return f"MultiArtifact({parts}, {self.transform!r})"

    def pixels(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the uint8 image, and the mask of the target class's artifact."""
        label = int(self.labels[index])
        image, mask = self._parts.get(label, self._parts[self.target_class]).pixels(index)
        return image, mask if label == self.target_class else np.zeros_like(mask)


class Pasted(ImageDataset):
    """Paste the artifact of one of the ``donors`` onto every image of ``clean``, at the same place.

    Args:
        masks: bool, (donors, height, width): the pixels that are pasted.
        seed: It and the image's id decide which donor.
    """

    def __init__(self, clean: ImageDataset, donors: ImageDataset, masks: np.ndarray, *, seed: int = 0) -> None:
        check_count("seed", seed, least=0)
        if clean.has_artifact.any() or not donors.has_artifact.all():
            raise DataError("The artifact is cut out of images with it, and pasted onto images without it.")
        if not len(clean) or not len(donors):
            raise DataError(f"Pasting needs images: {len(clean)} clean ones and {len(donors)} donors were given.")
        if masks.dtype != bool or masks.ndim != 3 or len(masks) != len(donors):
            raise DataError(
                f"{len(donors)} donors need as many masks, bool of shape ({len(donors)}, height, width), not "
                f"{masks.dtype} of {masks.shape}."
            )
        self.clean, self.donors, self.masks, self.seed = clean, donors, masks, seed
        self._copy_facts(clean)
        self.has_artifact = np.ones(len(clean), dtype=bool)

    @property
    def donor_ids(self) -> np.ndarray:
        """The id of each image's donor."""
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
