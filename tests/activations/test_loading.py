"""Images reach the cache once and in order, whatever gives them; what cannot is refused with a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler

from hansfree.activations import collect_activations
from hansfree.errors import DataError
from tests.activations.samples import Pictures, small_net

LAYER = "features.4"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_gives_what_its_dataset_gives(workers: int) -> None:
    data = Pictures(20)
    model = small_net()
    direct = collect_activations(model, LAYER, data, batch_size=8)
    loader = DataLoader(data, batch_size=8, num_workers=workers, drop_last=True)  # all the same, every image
    loaded = collect_activations(model, LAYER, loader)
    assert np.array_equal(direct.pooled, loaded.pooled)
    assert np.array_equal(direct.ids, loaded.ids)


@pytest.mark.parametrize("kind", ["pair", "triple"])
def test_plain_tuples(kind: Any) -> None:
    activations = collect_activations(small_net(), LAYER, Pictures(7, kind=kind), batch_size=4)
    assert activations.labels.tolist() == [0, 3, 2, 1, 0, 3, 2]
    assert activations.ids.tolist() == list(range(7))
    if kind == "pair":
        assert activations.has_artifact is None
    else:
        assert activations.has_artifact.tolist() == [True, False, False, True, False, False, True]


def test_loading_is_not_in_inference_mode() -> None:
    class Keeping(Pictures):
        """Keeps every image, as a dataset may; trained on later, it must be an ordinary tensor."""

        def image(self, index: int) -> torch.Tensor:
            self.kept = super().image(index)
            return self.kept

    data = Keeping(4)
    collect_activations(small_net(), LAYER, data)
    assert not data.kept.is_inference()


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        while True:
            yield torch.zeros(3, 16, 16), 0


def test_loaders_that_give_another_order_are_refused() -> None:
    data = Pictures(8)
    for loader, sentence in (
        (DataLoader(data, batch_size=4, shuffle=True), "shuffles or samples"),
        (DataLoader(data, batch_size=4, sampler=[1, 2, 3]), "shuffles or samples"),
        (DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 4, drop_last=False)), "shuffles or samples"),
        (DataLoader(data, batch_sampler=[[5, 6], [7]]), "shuffles or samples"),
        (DataLoader(Endless(), batch_size=2), "Endless is an iterable dataset. Give a map-style one"),
        (iter([]), "list_iterator must be a map-style dataset"),
        (Pictures(0), "no images"),
        (DataLoader(data, batch_size=None), "batch_size=None"),
    ):
        with pytest.raises(DataError, match=sentence):
            collect_activations(small_net(), LAYER, loader)
    plain = BatchSampler(SequentialSampler(data), 4, drop_last=False)
    assert len(collect_activations(small_net(), LAYER, DataLoader(data, batch_sampler=plain))) == 8


class Items(Dataset[Any]):
    def __init__(self, *items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


PIXELS = torch.zeros(3, 16, 16)


@pytest.mark.parametrize(
    ("items", "sentence"),
    [
        ([PIXELS] * 2, "got Tensor"),
        ([(PIXELS, 0, 0, 0)], "must yield Example"),
        ([(PIXELS, 0, index) for index in range(4)], r"must be true or false.*got \[0, 1, 2, 3\]"),
        ([(PIXELS, 0, "a.png")], "has_artifact must be numbers, not .*a.png"),
        ([(PIXELS, "cat")], "labels must be numbers, not .*cat"),
        ([(PIXELS, 0.5)], "labels must be whole numbers"),
        ([(PIXELS, torch.tensor([0, 1]))], r"labels of shape \(1, 2\), not one for each of 1"),
        ([("a.png", 1)], "images must be tensors"),
    ],
)
def test_items_that_do_not_say_what_they_are_get_a_sentence(items: list[Any], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        collect_activations(small_net(), LAYER, Items(*items))
