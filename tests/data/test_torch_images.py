"""Any torch dataset becomes a source of uint8 images, or an error says what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from hansfree.data import Subset, SyntheticLesions, Timestamp, WithArtifact
from hansfree.data.examples import IMAGENET, Normalize
from hansfree.data.torch_images import NORMALISATIONS, TorchImages, as_biased_data, as_image_dataset, as_tensor
from hansfree.errors import DataError, OptionError

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
LABELS = np.array([0, 1, 0, 1, 2, 0])


class Items(Dataset[Any]):
    """A list as a map-style dataset."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


def items(transform: Any = IMAGENET, **fields: Any) -> list[tuple[Any, ...]]:
    return [
        (transform(image), int(label), *(int(bit) for bit in fields.values())) for image, label in zip(PIXELS, LABELS)
    ]


@pytest.mark.parametrize("transform", [each for each in NORMALISATIONS if len(each.mean) == 3])
def test_normalised_tensors_become_their_pixels(transform: Normalize) -> None:
    found = TorchImages([Items(items(transform))])
    np.testing.assert_array_equal(found.images, PIXELS)
    np.testing.assert_array_equal(found.labels, LABELS)
    torch.testing.assert_close(found.transform(found.image(2)), transform(PIXELS[2]), atol=1e-5, rtol=0)
    assert found.class_names == ("0", "1", "2")
    assert found.has_artifact is None


@pytest.mark.parametrize("convert", [Image.fromarray, np.asarray, lambda image: torch.from_numpy(image).movedim(-1, 0)])
def test_images_that_are_not_normalised_yet(convert: Any) -> None:
    found = TorchImages([Items(items(convert))])
    np.testing.assert_array_equal(found.images, PIXELS)
    assert found.transform == IMAGENET


def test_several_datasets_in_every_form() -> None:
    first = Items([(IMAGENET(image), int(label), label == 1) for image, label in zip(PIXELS, LABELS)])
    names = [("image", "label", "has_artifact"), ("pixel_values", "labels", "artifact")]
    rows = [dict(zip(names[index % 2], item)) for index, item in enumerate(first.items)]
    found = TorchImages([first, DataLoader(Items(rows), batch_size=2)], class_names=("a", "b", "c"))
    assert found.sizes == [6, 6]
    assert found.class_names == ("a", "b", "c")
    np.testing.assert_array_equal(found.has_artifact, np.tile(LABELS == 1, 2))
    np.testing.assert_array_equal(found.images[6:], PIXELS)


@pytest.mark.parametrize("attribute", ["class_names", "classes", "features"])
def test_class_names_of_the_dataset(attribute: str) -> None:
    dataset, names = Items(items()), ["nevus", "melanoma", "keratosis"]
    setattr(dataset, attribute, {"label": SimpleNamespace(names=names)} if attribute == "features" else names)
    assert TorchImages([dataset]).class_names == tuple(names)


class Random(Items):
    def __getitem__(self, index: int) -> Any:
        return self.items[index][0] + torch.rand(()), *self.items[index][1:]


def bad(**changes: Any) -> Items:
    item = {"image": IMAGENET(PIXELS[0]), "label": 1, **changes}
    return Items([*items(), (item["image"], item["label"])])


@pytest.mark.parametrize(
    ("data", "error", "fragment"),
    [
        (Items([]), DataError, "no images"),
        (iter(items()), DataError, "map-style"),
        (DataLoader(Items(items()), shuffle=True), DataError, "shuffle=False"),
        (Items([torch.zeros(3, 8, 8)]), DataError, "must yield"),
        (Items([{"image": torch.zeros(3, 8, 8), "y": 1}]), DataError, "needs an image and a label"),
        (Random(items()), DataError, "random transforms"),
        (bad(image=torch.full((3, 8, 8), float("nan"))), DataError, "not finite"),
        (bad(image=torch.zeros(3, 9, 8)), DataError, "Resize"),
        (bad(image=torch.zeros(1, 8, 8)), DataError, "shape"),
        (bad(image=torch.full((3, 8, 8), 50.0)), DataError, "not normalised"),
        (bad(image="file.png"), DataError, "PIL"),
        (bad(label=0.5), DataError, "whole number"),
        (bad(label=-1), DataError, "Labels run from -1"),
        (Items([(torch.rand(3, 8, 8) * 7, 1)]), OptionError, "normalize="),
        (Items([(torch.zeros(3, 8, 8), 1, 2)]), DataError, "artifact label"),
    ],
)
def test_bad_data_are_refused(data: Any, error: type[Exception], fragment: str) -> None:
    with pytest.raises(error, match=fragment):
        TorchImages([data])


SOME = Items(items())


def test_datasets_become_biased_data() -> None:
    whole = WithArtifact(SyntheticLesions(160, size=16), Timestamp(), share=0.5, only_class=1)
    drawn, parts = as_biased_data(whole), [Subset(whole, rows) for rows in np.split(np.arange(160), [120, 140])]
    assert (len(drawn.train), drawn.biased_class) == (128, 1)
    given = as_biased_data(*parts)
    np.testing.assert_array_equal(given.train.has_artifact, parts[0].has_artifact)
    np.testing.assert_array_equal(given.test_clean.pixels(0)[0], parts[2].pixels(0)[0])
    assert as_image_dataset(whole) is whole
    marked = Items([(*item, bit) for item, bit in zip(SOME.items, (1, 0, 0, 1, 0, 1))])
    assert as_image_dataset(marked).has_artifact.tolist() == [True, False, False, True, False, True]
    torch.testing.assert_close(as_tensor(SOME), IMAGENET(PIXELS))


@pytest.mark.parametrize(
    ("call", "error", "fragment"),
    [
        (lambda: as_biased_data(SOME, SOME), OptionError, "Give val and test together"),
        (
            lambda: as_biased_data(SOME, SOME, SOME, has_artifact=[1, 0] * 9, groups=range(18)),
            OptionError,
            "leave them out",
        ),
        (lambda: as_biased_data(SOME, has_artifact=[1, 0] * 3, groups=[1]), DataError, "groups are 1 values"),
        (lambda: as_biased_data(SOME, has_artifact=[2] * 6), DataError, "6 values of 0 or 1"),
        (lambda: as_biased_data(SOME), DataError, "Which images have the artifact is not known"),
        (lambda: as_image_dataset(SOME), DataError, "no artifact labels"),
        (lambda: as_tensor(Items(items(Image.fromarray))), DataError, "tensors of one size"),
        (lambda: TorchImages([SOME]).name_outputs(2), DataError, "the model has 2 outputs"),
        (lambda: TorchImages([SOME], class_names="abc").name_outputs(2), DataError, "the data have 3 classes: a, b, c"),
    ],
)
def test_what_does_not_make_a_run_is_refused(call: Callable[[], object], error: type[Exception], fragment: str) -> None:
    with pytest.raises(error, match=fragment):
        call()
