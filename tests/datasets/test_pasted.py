"""An artifact cut out of one image and pasted onto another."""

from __future__ import annotations

import numpy as np
import pytest

from hansfree.artifacts import Timestamp
from hansfree.datasets import Part, Pasted, Stamped, SyntheticLesions
from hansfree.errors import DataError

WHOLE = Stamped(SyntheticLesions(12, size=32), Timestamp(), share=0.5)
CLEAN, DONORS = (Part(WHOLE, np.flatnonzero(WHOLE.has_artifact == bit)) for bit in (False, True))
MASKS = np.stack([DONORS.pixels(i)[1] for i in range(len(DONORS))])


def test_the_masked_pixels_are_a_donors_and_the_others_stay() -> None:
    pasted = Pasted(CLEAN, DONORS, MASKS)
    assert len(pasted) == len(CLEAN)
    assert pasted.has_artifact.all()
    assert np.array_equal(pasted.ids, CLEAN.ids)
    used = set()
    for index in range(len(pasted)):
        image, mask = pasted.pixels(index)
        (donor,) = (i for i, known in enumerate(MASKS) if np.array_equal(known, mask))
        used.add(donor)
        assert pasted.donor_ids[index] == DONORS.ids[donor]
        assert np.array_equal(image[mask], DONORS.pixels(donor)[0][mask])
        assert np.array_equal(image[~mask], CLEAN.pixels(index)[0][~mask])
    assert len(used) > 1


def test_the_donor_depends_on_seed_and_id_only() -> None:
    pasted, part = Pasted(CLEAN, DONORS, MASKS), Pasted(Part(CLEAN, np.array([4])), DONORS, MASKS)
    assert np.array_equal(pasted.pixels(4)[0], part.pixels(0)[0])
    other = Pasted(CLEAN, DONORS, MASKS, seed=1)
    assert any(not np.array_equal(pasted.pixels(i)[0], other.pixels(i)[0]) for i in range(len(CLEAN)))
    assert other.fingerprint != pasted.fingerprint
    assert Pasted(CLEAN, DONORS, ~MASKS).fingerprint != pasted.fingerprint


def test_what_cannot_be_pasted() -> None:
    with pytest.raises(DataError, match="pasted onto images that do not"):
        Pasted(DONORS, CLEAN, MASKS)
    with pytest.raises(DataError, match="6 donors need as many masks"):
        Pasted(CLEAN, DONORS, MASKS[:2])
    with pytest.raises(DataError, match="need one size"):
        Pasted(CLEAN, DONORS, np.zeros((6, 8, 8), dtype=bool)).pixels(0)
    with pytest.raises(DataError, match="0 clean ones"):
        Pasted(Part(CLEAN, np.array([], dtype=int)), DONORS, MASKS)
