"""Any torch dataset as a source of images: tensors, arrays or PIL images with their labels."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, SequentialSampler

from hansfree._internal.hashing import fingerprint
from hansfree._internal.progress import Progress, silent
from hansfree.data.artifacts import Artifact, FromFunction, InsertFunction
from hansfree.data.biased import BiasedData
from hansfree.data.datasets import LabelledImages
from hansfree.data.examples import IMAGENET, ImageDataset, Normalize
from hansfree.data.images import find_equal
from hansfree.data.listing import PARTS, TOO_FEW_OUTPUTS, Listing, OpenedImages
from hansfree.data.user_images import UserImages
from hansfree.errors import DataError, OptionError

NORMALISATIONS = (
    IMAGENET,
    Normalize((0.0,) * 3, (1.0,) * 3),
    Normalize((0.5,) * 3, (0.5,) * 3),
    Normalize((127 / 255,) * 3, (128 / 255,) * 3),
    Normalize((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),  # CLIP
    Normalize((0.0,), (1.0,)),
    Normalize((0.5,), (0.5,)),
)
"""Normalisations that are recognised from the numbers of an image."""

Images = Dataset[Any] | DataLoader[Any]
"""A map-style dataset, or a loader that does not shuffle, of ``(image, label)``, ``(image, label, has_artifact)``,
dictionaries (Hugging Face) or `Example`."""

_EXACT = 0.02  # of a pixel's step: how far numbers may be from those of a uint8 image
_KEYS = {
    "image": ("image", "img", "pixel_values", "images"),
    "label": ("label", "labels", "target"),
    "has_artifact": ("has_artifact", "artifact"),
}


class Item(NamedTuple):
    """One element of a dataset."""

    image: Any
    label: Any
    has_artifact: Any = None


def read_item(item: Any) -> Item:
    """Return the image, label and, where given, the artifact label of an element of a dataset."""
    if isinstance(item, Mapping):
        found = {name: next((item[key] for key in keys if key in item), None) for name, keys in _KEYS.items()}
        if found["image"] is None or found["label"] is None:
            raise DataError(
                f"An element of the dataset needs an image and a label; it has {', '.join(map(str, item))}."
            )
        return Item(**found)
    if isinstance(item, tuple | list) and len(item) >= 2:
        return Item(*item[:3])
    raise DataError(
        "The dataset must yield (image, label), (image, label, has_artifact), or a dictionary with the keys image and "
        f"label, not {type(item).__name__}."
    )


class TorchImages:
    """The images of torch datasets, one after the other, as uint8 pixels in memory.

    Args:
        datasets: map-style datasets, or loaders that neither shuffle nor sample.
        normalize: how the tensors were normalised. None recognises the usual ones; PIL images and uint8 arrays are not
            normalised yet, and get ImageNet's.
        class_names: in the order of the model's outputs; None takes those of the dataset, or numbers.

    Attributes:
        has_artifact: the artifact labels that the datasets carry, bool; None where they carry none.
        sizes: number of images of each dataset.
    """

    def __init__(
        self,
        datasets: Sequence[Images],
        *,
        normalize: Normalize | None = None,
        class_names: Sequence[str] | None = None,
        progress: Progress = silent,
    ) -> None:
        plain = [dataset_of(each) for each in datasets]
        self.sizes = [len(each) for each in plain]
        pairs = [(dataset, row) for dataset in plain for row in range(len(dataset))]
        first, again = (read_item(plain[0][0]).image for _ in range(2))
        if torch.is_tensor(first) and not torch.equal(first, again):
            raise DataError("The dataset returns another image each time. Give one without random transforms.")
        self.transform = normalize or recognise(first)
        images: list[np.ndarray] = []
        labels, bits = [], []
        for dataset, row in progress(pairs, total=len(pairs), label="reading images"):
            item = read_item(dataset[row])
            images.append(_to_pixels(item.image, self.transform, row))
            if images[-1].shape != images[0].shape:
                raise DataError(
                    f"Image {row} has the shape {images[-1].shape}, the first {images[0].shape}. Resize all to the "
                    "model's size."
                )
            labels.append(_whole(item.label, row))
            bits.append(item.has_artifact)
        self.images, self.labels = np.stack(images), np.array(labels, dtype=np.int64)
        self.has_artifact = None if all(bit is None for bit in bits) else np.array([_bit(bit) for bit in bits])
        stated = class_names or _stated_names(plain[0])
        self._are_named = stated is not None
        self.class_names = tuple(map(str, range(int(self.labels.max()) + 1) if stated is None else stated))
        self._check_labels(f"there are {len(self.class_names)} classes: {', '.join(self.class_names)}")
        self.ids = np.arange(len(self.labels))
        self.id_range = range(len(self.labels))
        self._content = fingerprint(self.images, self.labels)

    @property
    def fingerprint(self) -> str:
        """Everything that the images depend on."""
        return f"TorchImages({self._content}, {self.class_names})"

    def name_outputs(self, count: int) -> None:
        """Give every output of a model a class; raise if the classes are not its outputs.

        A class of which there is no image is known by the model alone, unless the dataset states its classes.
        """
        if not self._are_named:
            self.class_names = tuple(map(str, range(count)))
        elif len(self.class_names) != count:
            names = ", ".join(self.class_names)
            fact = f"The model has {count} outputs, the data have {len(self.class_names)} classes: {names}."
            what = "They must be one for each output, in the model's order."
            raise DataError(f"{fact} {TOO_FEW_OUTPUTS if count < len(self.class_names) else what}")
        self._check_labels(f"the model has {count} outputs: labels are 0 to {count - 1}. {TOO_FEW_OUTPUTS}")

    def _check_labels(self, fact: str) -> None:
        wrong = np.flatnonzero((self.labels < 0) | (self.labels >= len(self.class_names)))
        if len(wrong):
            raise DataError(
                f"Labels run from {self.labels.min()} to {self.labels.max()} (image {wrong[0]} has "
                f"{self.labels[wrong[0]]}), but {fact.rstrip('.')}."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def image(self, index: int) -> np.ndarray:
        """Return the pixels, uint8 (height, width, channels)."""
        return np.array(self.images[index])


@dataclass(frozen=True, kw_only=True)
class DatasetListing(Listing):
    """Torch datasets in place of files: all of a run's images, or training, validation and test images."""

    images: TorchImages

    @classmethod
    def of(cls, images: TorchImages, *, groups: Sequence[Hashable] | None = None) -> DatasetListing:
        """List one dataset, whose split is still to be drawn (keeping groups together), or three: the split."""
        is_split = len(images.sizes) == len(PARTS)
        if groups is not None and is_split:
            raise OptionError("groups keep images of one subject together in a split that is drawn: leave them out.")
        if groups is not None and len(groups) != len(images):
            raise DataError(f"groups are {len(groups)} values, but there are {len(images)} images.")
        parts = np.split(np.arange(len(images)), list(accumulate(images.sizes))[:-1]) if is_split else None
        prefixes = [f"{part}-" for part in PARTS] if is_split else [""]
        return cls(
            place=Path("the dataset"),
            paths=[f"{prefix}{row}" for prefix, size in zip(prefixes, images.sizes) for row in range(size)],
            labels=images.labels,
            class_names=images.class_names,
            parts=parts,
            groups=None if groups is None else [str(group) for group in groups],
            images=images,
        )

    @property
    def group_note(self) -> str | None:
        """A sentence for the report where the split is drawn."""
        if self.parts is not None or self.groups is not None:
            return None
        return "The dataset has no groups: images of one subject may be in different parts of the split."

    def find_copies(self, rows: np.ndarray) -> list[np.ndarray]:
        """Return groups of these rows whose images have the same pixels."""
        contents = {index: fingerprint(self.images.images[row]) for index, row in enumerate(rows)}
        return [rows[group] for group in find_equal(contents)]

    def open(self, **_: Any) -> OpenedImages:
        """Return the images, which were checked when they were read."""
        return OpenedImages(self, self.images, np.arange(len(self.images)), ())


def open_datasets(
    source: TorchImages,
    *,
    has_artifact: Sequence[bool] | np.ndarray | None = None,
    artifact: Artifact | InsertFunction | None = None,
    groups: Sequence[Hashable] | None = None,
    seed: int = 0,
) -> UserImages:
    """Return the images of torch datasets with their artifact labels and split, checked as those of a run file."""
    height, width, channels = source.images.shape[1:]
    if height != width:
        raise DataError(f"Images have {width} x {height} pixels. Crop or pad them to squares.")
    labels = source.has_artifact
    if has_artifact is not None:
        labels = np.asarray(has_artifact)
        if labels.shape != (len(source),) or not np.isin(labels, (0, 1)).all():
            raise DataError(f"has_artifact must be {len(source)} values of 0 or 1, one for each image.")
        labels = labels.astype(bool)
    if artifact is not None and not isinstance(artifact, Artifact):
        artifact = FromFunction(artifact, channels=channels, size=height)
    if labels is None and artifact is None:
        raise DataError("Which images have the artifact is not known. Give has_artifact, or an artifact to insert.")
    return UserImages(
        listing=DatasetListing.of(source, groups=groups),
        classes=source.class_names,
        has_artifact=labels,
        insert=artifact,
        size=height,
        channels=1 if channels == 1 else 3,
        transform=source.transform,
        seed=seed,
    )


def as_biased_data(
    train: Images,
    val: Images | None = None,
    test: Images | None = None,
    *,
    has_artifact: Sequence[bool] | np.ndarray | None = None,
    artifact: Artifact | InsertFunction | None = None,
    groups: Sequence[Hashable] | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> BiasedData:
    """Return torch datasets as `BiasedData`, the form in which a run holds its images; arguments as `hansfree.unlearn`.

    Examples:
        >>> from hansfree.data import SyntheticLesions, Timestamp, WithArtifact, as_biased_data
        >>> images = WithArtifact(SyntheticLesions(400, size=16), Timestamp(), share=0.5, only_class=0)
        >>> len(as_biased_data(images).train)
        320
    """
    source = TorchImages(given_datasets(train, val, test), progress=progress)
    return open_datasets(source, has_artifact=has_artifact, artifact=artifact, groups=groups, seed=seed).data()


def given_datasets(train: Images, val: Images | None, test: Images | None) -> list[Images]:
    """Return the datasets that are given: one, or all three."""
    given = [each for each in (train, val, test) if each is not None]
    if len(given) == 2:
        raise OptionError("Give val and test together, or neither: they are drawn from train then.")
    return given


def as_image_dataset(data: Images) -> ImageDataset:
    """Return a torch dataset with artifact labels as an `ImageDataset`; one that is an `ImageDataset` itself."""
    if isinstance(data, ImageDataset):
        return data
    source = TorchImages([data])
    if source.has_artifact is None:
        raise DataError("The dataset has no artifact labels: it must yield (image, label, has_artifact).")
    return LabelledImages(source, source.has_artifact, transform=source.transform)


def as_tensor(data: Tensor | Images) -> Tensor:
    """Return the images of a dataset in one tensor (n, channels, height, width), as its transform makes them."""
    if isinstance(data, Tensor):
        return data
    dataset = dataset_of(data)
    images = [read_item(dataset[row]).image for row in range(len(dataset))]
    if not torch.is_tensor(images[0]) or len({image.shape for image in images}) > 1:
        raise DataError("The dataset must yield tensors of one size: give it a transform that makes them.")
    return torch.stack(images)


def recognise(image: Any) -> Normalize:
    """Return the normalisation that makes an image's numbers those of uint8 pixels.

    Raises:
        OptionError: none of the usual ones does.
    """
    if not (torch.is_tensor(image) and image.is_floating_point()):
        channels = _uint8(image, 0).shape[-1]
        return IMAGENET if channels == 3 else Normalize((0.5,) * channels, (0.5,) * channels)
    for transform in NORMALISATIONS:
        if len(transform.mean) == len(image) and _distance(image, transform) < _EXACT:
            return transform
    raise OptionError(
        f"The normalisation of the images is not recognised: numbers run from {image.min():.3g} to {image.max():.3g}. "
        "Give it: normalize=hf.Normalize(mean=..., std=...), as in the transform of your dataset."
    )


def _to_pixels(image: Any, transform: Normalize, row: int) -> np.ndarray:
    """Return the uint8 pixels (height, width, channels) of an image; normalised numbers are rounded."""
    if not (torch.is_tensor(image) and image.is_floating_point()):
        return _uint8(image, row)
    if image.ndim != 3 or len(image) != len(transform.mean):
        raise DataError(
            f"Image {row} has the shape {tuple(image.shape)}; ({len(transform.mean)}, height, width) is needed."
        )
    if not torch.isfinite(image).all():
        raise DataError(f"Image {row} has numbers that are not finite.")
    values = _as_pixels(image, transform)
    if values.min() < -1 or values.max() > 256:
        raise DataError(
            f"Image {row} is not normalised by mean {transform.mean} and std {transform.std}: its pixels would run "
            f"from {values.min():.0f} to {values.max():.0f}."
        )
    return np.asarray(values.round().clamp(0, 255), dtype=np.uint8)


def _as_pixels(image: Tensor, transform: Normalize) -> Tensor:
    values = image.detach().cpu().double().movedim(0, -1)
    return 255 * (values * torch.tensor(transform.std) + torch.tensor(transform.mean))


def _distance(image: Tensor, transform: Normalize) -> float:
    """Return how far the numbers are from uint8 pixels; infinite outside their range."""
    values = _as_pixels(image, transform)
    if not torch.isfinite(values).all() or values.min() < -_EXACT or values.max() > 255 + _EXACT:
        return float("inf")
    return float((values - values.round()).abs().max())


def _uint8(image: Any, row: int) -> np.ndarray:
    if isinstance(image, Image.Image):
        image = np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
    elif torch.is_tensor(image):
        image = image.movedim(0, -1).numpy()
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim not in (2, 3):
        raise DataError(f"Image {row} must be a tensor, a uint8 array or a PIL image, not {type(image).__name__}.")
    return image if image.ndim == 3 else image[..., None]


def dataset_of(data: Images) -> Any:
    """Return the dataset, with a length and an index; its elements are read in their order."""
    dataset: Any = data.dataset if isinstance(data, DataLoader) else data
    kind = type(dataset).__name__
    if isinstance(dataset, IterableDataset):
        raise DataError(f"{kind} is an iterable dataset. Give a map-style one, such as list(dataset).")
    if isinstance(data, DataLoader) and not isinstance(data.sampler, SequentialSampler):
        raise DataError("The loader shuffles or samples. Give it with shuffle=False, or give its dataset.")
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise DataError(f"{kind} must be a map-style dataset, with a length and an index.")
    if len(dataset) == 0:
        raise DataError("There are no images in the dataset.")
    return dataset


def _stated_names(dataset: Any) -> Sequence[str] | None:
    """Return the class names that a dataset states (torchvision: ``classes``); None where it states none."""
    features: Any = getattr(dataset, "features", None)  # Hugging Face
    label = next((features[key] for key in _KEYS["label"] if key in features), None) if features else None
    for place, name in ((dataset, "class_names"), (dataset, "classes"), (label, "names")):
        if isinstance(names := getattr(place, name, None), Sequence):
            return names
    return None


def _whole(label: Any, row: int) -> int:
    number = np.asarray(label)
    if number.size != 1 or not np.isfinite(number.astype(float)).all() or number.astype(float) % 1:
        raise DataError(f"The label of image {row} is {label!r:.40}; a whole number is needed, the class.")
    return int(number.item())


def _bit(value: Any) -> bool:
    number = np.asarray(value)
    if number.size != 1 or number.item() not in (0, 1):  # None, too
        raise DataError(f"An artifact label is {value!r:.40}; each must be true or false, 1 or 0.")
    return bool(number)
