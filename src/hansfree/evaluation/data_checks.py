"""Which claims the held-out images allow, in plain words: what a reader may and may not conclude."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hansfree.corrections import has_counter_examples
from hansfree.data import BiasedData, ImageDataset
from hansfree.metrics import MIN_GROUP, large_classes

BIASED_ACCURACY, WORST_GROUP = "accuracy with the artifact", "worst group"  # the claims' names


@dataclass(frozen=True)
class Claim:
    """Something that a reader would like to conclude, whether the data allow it, and why."""

    name: str
    can_be_made: bool
    sentence: str


def claims(data: BiasedData) -> tuple[Claim, ...]:
    """Return what the data allow to claim about any model; known before one is trained."""
    test, n = data.test_biased, len(data.test_biased)
    if data.is_inserted:
        how = "inserted"
        if data.transplant is not None:
            how = f"transplanted from test images that have it ({data.transplant})"
        accuracy = Claim(BIASED_ACCURACY, True, f"All {n} test images are also evaluated with the artifact {how}.")
        flips = Claim("flip rate", True, f"The same images are evaluated without the artifact, and with it {how}.")
    else:
        is_known = len(large_classes(test.labels)) >= 2
        needed = (
            f" At least {MIN_GROUP} in each of two classes are needed: the accuracy on images with the artifact is "
        )
        sentence = f"{_found(test)}.{'' if is_known else f'{needed}not available.'}"
        accuracy = Claim(BIASED_ACCURACY, is_known, sentence)
        flips = Claim(
            "flip rate",
            False,
            "Natural artifact, no counterfactual pairs: how many predictions it changes is not available.",
        )
    return accuracy, flips, _worst_group(data), _selection(data), _derivative(data)


def _worst_group(data: BiasedData) -> Claim:
    few = [
        f"{class_name!r} {kind} the artifact ({count})"
        for kind, images in (("without", data.test_clean), ("with", data.test_biased))
        for class_name, count in zip(images.class_names, np.bincount(images.labels, minlength=len(images.class_names)))
        if count < MIN_GROUP
    ]
    sentence = f"Every class has at least {MIN_GROUP} test images without and with the artifact."
    if few:
        sentence = (
            f"Fewer than {MIN_GROUP} test images are of {_listed(few)}: the lowest accuracy that is shown is that of "
            "the other groups, and the worst may be one of these."
        )
    return Claim(WORST_GROUP, not few, sentence)


def _selection(data: BiasedData) -> Claim:
    can_be_made = has_counter_examples(data)
    sentence = "The strength is chosen by the accuracy on validation images with the artifact."
    if not can_be_made:
        sentence = (
            f"{_found(data.val_biased, 'validation')}, too few to choose by: the strength is chosen by the derivative "
            "along the CAV, which says how far the artifact moves the answers, not whether they are right."
        )
    return Claim("strength chosen by accuracy", can_be_made, sentence)


def _derivative(data: BiasedData) -> Claim:
    n = len(data.test_biased)
    images = f"the {n} test images with the artifact"
    if not data.is_inserted and n < MIN_GROUP:
        images = f"all {n + len(data.test_clean)} test images, as only {n} have the artifact"
    return Claim(
        "derivative along the CAV (TCAV)",
        True,
        f"Known on {images}. It is second evidence: corrections were trained on the same direction.",
    )


def _found(images: ImageDataset, part: str = "test") -> str:
    """Say how many images with the artifact there are, by class."""
    counts = np.bincount(images.labels, minlength=len(images.class_names))
    if not counts.any():
        return f"No {part} image has the artifact"
    each = [f"{count} of class {name!r}" for name, count in zip(images.class_names, counts)]
    only = "Only " if (counts < MIN_GROUP).any() else ""
    noun = "images have" if len(images) > 1 else "image has"
    return f"{only}{len(images)} {part} {noun} the artifact: {_listed(each)}"


def _listed(parts: list[str]) -> str:
    """Join a few with commas; of many, the first ones and how many there are."""
    return ", ".join(parts) if len(parts) <= 8 else f"{', '.join(parts[:8])} and {len(parts) - 8} more"
