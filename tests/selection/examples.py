"""What heads may have done on validation images."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import strategies as st

from hansfree.corrections.selection import Validation
from hansfree.data.biased import BiasedData
from hansfree.data.examples import ImageDataset, Normalize
from hansfree.metrics import Score


def judged(
    clean: float,
    biased: float,
    *,
    finite: bool = True,
    lost: tuple[int, ...] = (),
    derivative: float | None = None,
    classes: Mapping[int, float] | None = None,
) -> Validation:
    scores = [
        Score(f"balanced_accuracy_{kind}", value, 0.01, 100) for kind, value in (("clean", clean), ("biased", biased))
    ]
    return Validation(*scores, is_finite=finite, lost=lost, derivative=derivative, by_class=classes or {})


ORIGINAL = judged(0.90, 0.40, derivative=2.0)

validations = st.builds(
    judged,
    st.sampled_from([0.85, 0.88, 0.9, 0.95]),
    st.sampled_from([0.3, 0.5, 0.69, 0.695, 0.7, 0.704, 0.708]),  # a standard error is 0.01
    finite=st.booleans(),
    lost=st.sampled_from([(), (), (1,)]),
    derivative=st.sampled_from([0.0, 0.1, 0.2, 0.3, 1.0, 2.0, 5.0]),
)


class Counted(ImageDataset):
    """So many images per class, all without or all with the artifact; nobody looks at a pixel."""

    class_names = ("red", "green")
    transform = Normalize()
    fingerprint = "counted"

    def __init__(self, counts: Mapping[int, int], *, has_artifact: bool) -> None:
        self.labels = np.repeat([*counts], [*counts.values()]).astype(np.int64)
        self.ids = np.arange(len(self.labels))
        self.has_artifact = np.full(len(self.labels), has_artifact)

    def pixels(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        raise NotImplementedError


ENOUGH = {0: 40, 1: 40}


def held_out(
    *,
    val_clean: Mapping[int, int] = ENOUGH,
    val_biased: Mapping[int, int] = ENOUGH,
    test_clean: Mapping[int, int] = ENOUGH,
    test_biased: Mapping[int, int] = ENOUGH,
    inserted: bool = False,
) -> BiasedData:
    """Return sets with so many images of each class."""
    return BiasedData(
        train=Counted(ENOUGH, has_artifact=False),
        val_clean=Counted(val_clean, has_artifact=False),
        val_biased=Counted(val_biased, has_artifact=True),
        test_clean=Counted(test_clean, has_artifact=False),
        test_biased=Counted(test_biased, has_artifact=True),
        biased_class=0,
        artifact="plaster",
        is_localized=True,
        is_inserted=inserted,
    )
