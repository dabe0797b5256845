"""Sets that are kept in memory: the same examples, quicker."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from hansfree.artifacts import LSB, Plaster
from hansfree.datasets import InMemory, Stamped, SyntheticLesions
from hansfree.errors import DataError


def test_in_memory_serves_the_same_examples():
    data = Stamped(SyntheticLesions(24, size=32, start=5), Plaster(), share=0.5, only_class=1, flip_share=0.2)
    kept = InMemory(data)
    assert kept.is_relabelled.any()
    assert len(kept) == len(data) == 24
    for name in ("labels", "ids", "has_artifact", "is_relabelled", "class_names", "fingerprint", "transform"):
        assert np.array_equal(getattr(kept, name), getattr(data, name))
    for plain, quick in zip(DataLoader(data, batch_size=10), DataLoader(kept, batch_size=10)):
        for one, other in zip(plain, quick):
            assert one.dtype == other.dtype
            assert torch.equal(one, other)
    for one, other in zip(kept.batch([3, 1]), next(iter(DataLoader([data[3], data[1]], batch_size=2)))):
        assert torch.equal(one, other)
    for one, other in zip(kept[4], data[4]):
        assert torch.equal(torch.as_tensor(one), torch.as_tensor(other))


def test_in_memory_gives_copies():
    kept = InMemory(Stamped(SyntheticLesions(2, size=16), LSB(), share=1))
    kept.pixels(0)[0][:] = 0
    kept[0].mask[:] = False
    assert kept.images[0].any()
    assert kept.masks[0].all()


def test_in_memory_needs_one_size():
    class Mixed(SyntheticLesions):
        def image(self, index: int) -> np.ndarray:
            return super().image(index)[: 16 - index]

    with pytest.raises(DataError, match="Image 1 has shape"):
        InMemory(Stamped(Mixed(3, size=16), LSB(), share=0))


def test_it_shows_how_far_it_is():
    seen = []

    def progress(steps, *, total, label):
        for step in steps:
            yield step
            seen.append((step, total, label))

    InMemory(Stamped(SyntheticLesions(3, size=16), LSB(), share=0), progress=progress)
    assert seen == [(0, 3, "reading images"), (1, 3, "reading images"), (2, 3, "reading images")]
    InMemory(Stamped(SyntheticLesions(1, size=16), LSB(), share=0), progress=progress, label="reading images (test)")
    assert seen[3:] == [(0, 1, "reading images (test)")]


def test_an_empty_set_is_refused():
    data = Stamped(SyntheticLesions(1, size=16), LSB(), share=0)
    data.labels = data.labels[:0]
    with pytest.raises(DataError, match="no image to keep in memory"):
        InMemory(data)
