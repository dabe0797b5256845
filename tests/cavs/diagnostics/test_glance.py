"""The first look: bits that show are seen, and bits that mean nothing pass as often as the level says."""

from __future__ import annotations

import numpy as np
import pytest

from hansfree.cavs.diagnostics import examine_cav, glance_at
from tests.cavs.diagnostics.samples import gaussian


@pytest.mark.parametrize("cav", ["signal", "pair", "ridge"])
def test_bits_that_show_are_seen(cav: str) -> None:
    X, bits, _ = gaussian(30, 40, 6, size=2.0)
    seen = glance_at(X, bits, cav=cav, seed=0)
    assert seen.is_visible
    assert seen.auc > 0.8
    assert glance_at(X, bits, cav=cav, seed=0) == seen


def test_bits_that_mean_nothing_pass_in_one_of_twenty_looks() -> None:
    looks = [glance_at(*gaussian(20, 30, 6, size=0.0, seed=seed)[:2], cav="signal", seed=seed) for seed in range(200)]
    assert 0.01 < np.mean([look.is_visible for look in looks]) < 0.1
    assert np.mean([look.auc for look in looks]) == pytest.approx(0.5, abs=0.02)


def test_the_auc_is_that_of_the_whole_examination() -> None:
    X, bits, _ = gaussian(20, 30, 6, size=1.0)
    (found,) = (each for each in examine_cav(X, bits, seed=3).findings if each.name == "held_out_auc")
    assert glance_at(X.astype(np.float32), bits, cav="signal", seed=3).auc == pytest.approx(found.value)
