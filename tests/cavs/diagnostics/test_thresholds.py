"""The table of thresholds is one piece."""

from __future__ import annotations

import numpy as np
import pytest

from hansfree.cavs.diagnostics import THRESHOLDS
from hansfree.cavs.diagnostics.diagnosis import level_of
from hansfree.cavs.diagnostics.resampling import TARGET


@pytest.mark.parametrize("name", THRESHOLDS)
def test_levels_are_in_order(name: str) -> None:
    threshold = THRESHOLDS[name]
    step = -1e-6 if threshold.more_is_better else 1e-6
    assert level_of(name, threshold.good) == "good"
    assert level_of(name, threshold.good + step) == "fair"
    assert level_of(name, threshold.fair) == "fair"
    assert level_of(name, threshold.fair + step) == "poor"


def test_the_three_angles_say_the_same() -> None:
    error, halves, bootstrap = (
        np.radians([THRESHOLDS[name].good, THRESHOLDS[name].fair])
        for name in ("expected_error", "split_half_angle", "bootstrap_angle")
    )
    assert np.degrees(error[0]) == pytest.approx(TARGET)
    np.testing.assert_allclose(np.cos(halves), 1 / (1 + 2 * np.tan(error) ** 2), atol=2e-3)
    np.testing.assert_allclose(np.tan(bootstrap), np.sin(error), atol=2e-3)
