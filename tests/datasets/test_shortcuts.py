"""Several shortcuts in one set: the pictures are the same whichever of them is spoken of."""

from __future__ import annotations

import numpy as np
import pytest

from hansfree.artifacts import LSB, Brightness, Timestamp
from hansfree.datasets import InMemory, Normalize, Shortcuts, Stamped, SyntheticLesions
from hansfree.errors import OptionError

SOURCE = SyntheticLesions(80, size=32)
ARTIFACTS = {0: Timestamp(), 2: Brightness()}


def of(label: int, **options: object) -> Shortcuts:
    return Shortcuts(SOURCE, ARTIFACTS, speaks_of=label, **{"share": 0.4, **options})  # type: ignore[arg-type]


def test_every_picture_is_that_of_its_own_classes_artifact() -> None:
    alone = {label: Stamped(SOURCE, artifact, share=0.4, only_class=label) for label, artifact in ARTIFACTS.items()}
    data = of(0)
    for index, label in enumerate(SOURCE.labels):
        expected = alone[label].pixels(index)[0] if label in alone else SOURCE.image(index)
        assert np.array_equal(data.pixels(index)[0], expected)
    changed = [not np.array_equal(data.pixels(i)[0], SOURCE.image(i)) for i in range(80)]
    assert sum(changed) == 2 * 8
    assert np.array_equal(data.labels, SOURCE.labels)


@pytest.mark.parametrize("label", [0, 2])
def test_bits_and_masks_speak_of_one_artifact(label: int) -> None:
    data = of(label)
    alone = Stamped(SOURCE, ARTIFACTS[label], share=0.4, only_class=label)
    assert np.array_equal(data.has_artifact, alone.has_artifact)
    assert data.has_artifact.sum() == 8
    for index in range(80):
        assert data.pixels(index)[1].any() == data.has_artifact[index]
        if data.has_artifact[index]:
            assert np.array_equal(data.pixels(index)[1], alone.pixels(index)[1])


def test_pictures_are_the_same_whatever_is_spoken_of_and_caches_are_not() -> None:
    one, other = of(0), of(2)
    assert all(np.array_equal(one.pixels(i)[0], other.pixels(i)[0]) for i in range(80))
    assert one.pictures == other.pictures
    assert one.fingerprint != other.fingerprint
    assert InMemory(one).pictures == one.pictures


def test_pictures_tell_everything_else() -> None:
    others = [
        of(0),
        of(0, share=0.5),
        of(0, seed=1),
        of(0, transform=Normalize(mean=(0.5, 0.5, 0.5))),
        Shortcuts(SOURCE, {**ARTIFACTS, 1: LSB()}, speaks_of=0, share=0.4),
        Shortcuts(SOURCE, {0: Brightness(), 2: Timestamp()}, speaks_of=0, share=0.4),
        Shortcuts(SyntheticLesions(80, size=33), ARTIFACTS, speaks_of=0, share=0.4),
    ]
    assert len({data.pictures for data in others}) == len(others)


def test_an_artifact_that_is_not_there_cannot_be_spoken_of() -> None:
    with pytest.raises(OptionError, match=r"Class 1 has no artifact to speak of; known: \[0, 2\]"):
        of(1)
