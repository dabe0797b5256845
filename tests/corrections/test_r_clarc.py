"""R-ClArC: shifted is what the gate fires on, and the gate fires on no more clean images than was asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from hansfree.activations import Activations
from hansfree.corrections import PClArC, RClArC
from hansfree.errors import DataError, OptionError
from tests.corrections.examples import CASES, TinyImages, collect, fit_cav

CASE = CASES["convolution"]


@pytest.fixture(scope="module")
def activations() -> Activations:
    return collect(CASE, CASE.model(), TinyImages(200))


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("rate", [0.001, 0.05, 0.3])
def test_the_false_fire_rate_is_kept(rate: float, k: int, activations: Activations) -> None:
    fired = RClArC(fit_cav(activations, k), false_fire_rate=rate).fires(activations, activations)
    clean = ~np.asarray(activations.has_artifact)
    assert rate - 2 / clean.sum() <= fired[clean].mean() <= rate
    assert fired[~clean].mean() > fired[clean].mean()


def test_it_is_p_clarc_where_the_gate_fires_and_nothing_elsewhere(activations: Activations) -> None:
    cav = fit_cav(activations, 2)
    method = RClArC(cav)
    fired = method.fires(activations, activations)
    assert 0 < fired.sum() < len(fired)
    (before,) = next(activations.stream())
    with torch.no_grad():
        after = method.inference_edit(activations)(before)
        projected = PClArC(cav).inference_edit(activations)(before)
    expected = torch.where(torch.from_numpy(fired)[:, None, None, None], projected, before)
    torch.testing.assert_close(after, expected)


def test_it_tells_how_often_it_fires(activations: Activations) -> None:
    model = CASE.model()
    clean, biased = (collect(CASE, model, TinyImages(50, artifact=kind, seed=1)) for kind in ("none", "all"))
    method = RClArC(fit_cav(activations))
    told = method.remark(activations, clean=clean, biased=biased)
    assert f"{100 * method.fires(activations, clean).mean():.1f} % of 50 test images without the artifact" in told
    assert f"{100 * method.fires(activations, biased).mean():.1f} % of 50 test images with the artifact" in told
    assert "with the artifact" not in method.remark(activations, clean=clean, biased=None)


@pytest.mark.parametrize("rate", [0.0, 1.0, float("nan")])
def test_a_rate_that_cannot_be_kept_is_refused(rate: float, activations: Activations) -> None:
    with pytest.raises(OptionError, match="false_fire_rate"):
        RClArC(fit_cav(activations), false_fire_rate=rate)


@pytest.mark.parametrize("bits", [None, np.ones(200, dtype=bool)])
def test_a_gate_needs_clean_images(bits: np.ndarray | None, activations: Activations) -> None:
    with pytest.raises(DataError, match="without the artifact"):
        RClArC(fit_cav(activations)).correct(CASE.model(), replace(activations, has_artifact=bits))
