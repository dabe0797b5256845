from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from hansfree.cavs import SignalCAV
from hansfree.cavs.quality import alignment_mean, alignment_sample, cav_auc
from hansfree.errors import UndefinedMetricError
from tests.cavs.samples import activations


def changes(n=50, *, seed=0):
    return np.array([1.0, 2.0, 0.0, 0.0]) + np.random.default_rng(seed).normal(size=(n, 4))


def test_alignment_sample_is_the_paper_s_equation():
    h, deltas = np.array([3.0, 1.0, 0.5, -1.0]), changes()
    terms = [h @ delta / (np.sqrt(h @ h) * np.sqrt(delta @ delta)) for delta in deltas]
    quality = alignment_sample(h, deltas)
    assert quality.value == pytest.approx(sum(terms) / 50)
    variance = sum((term - sum(terms) / 50) ** 2 for term in terms) / 49
    assert quality.standard_error == pytest.approx(np.sqrt(variance / 50))
    assert quality.n == 50


def test_alignment_mean_is_the_paper_s_equation_with_the_jackknife_s_error():
    def s_bar(h, deltas):
        mean = sum(deltas) / len(deltas)
        return h / np.linalg.norm(h) @ (mean / np.linalg.norm(mean))

    h, deltas = np.array([3.0, 1.0, 0.5, -1.0]), changes()
    quality = alignment_mean(h, deltas)
    assert quality.value == pytest.approx(s_bar(h, deltas))
    left_out = np.array([s_bar(h, np.delete(deltas, i, axis=0)) for i in range(50)])
    assert quality.standard_error == pytest.approx(np.sqrt(49 / 50 * np.sum((left_out - left_out.mean()) ** 2)))


@pytest.mark.parametrize("measure", [alignment_sample, alignment_mean])
def test_one_sample_has_no_standard_error(measure):
    assert measure([1.0, 0.0], [[3.0, 4.0]]).value == pytest.approx(0.6)
    assert measure([1.0, 0.0], [[3.0, 4.0]]).standard_error is None


@pytest.mark.parametrize("measure", [alignment_sample, alignment_mean])
def test_alignment_of_nothing_is_an_error(measure):
    with pytest.raises(UndefinedMetricError, match="changed none of the 5 samples"):
        measure([1.0, 0.0], np.zeros((5, 2)))
    with pytest.raises(UndefinedMetricError, match="mean change over 2 samples is zero"):
        alignment_mean([1.0, 0.0], [[1.0, 1.0], [-1.0, -1.0]])


def test_auc_is_that_of_the_scores_and_needs_both_classes():
    X, bits = activations()
    names = np.where(bits, "ruler", "clean")
    cav = SignalCAV().fit(X, names)
    quality = cav_auc(cav, X, names)
    assert (quality.value, quality.n) == (pytest.approx(roc_auc_score(bits, cav.decision_function(X))), 60)
    assert quality.standard_error > 0
    with pytest.raises(UndefinedMetricError, match="all 20 are of one"):
        cav_auc(cav, X[bits], np.full(bits.sum(), "ruler"))
    few = np.append(np.flatnonzero(~bits), np.flatnonzero(bits)[0])
    assert cav_auc(cav, X[few], names[few]).standard_error is None


@pytest.mark.parametrize("case", ["a", "b"])
def test_the_signal_cav_is_the_published_one(published, case):
    """Of the paper's code, which adds 1e-7 to the length of a change."""
    cav = SignalCAV().fit(published[f"cav_{case}_X"], published[f"cav_{case}_t"] > 0)
    np.testing.assert_allclose(cav.directions_, published[f"cav_{case}_signal"], rtol=1e-6, atol=1e-9)
    for part in ("test", "val"):
        direction, deltas = published["align_cav"], published[f"align_{part}_diffs"]
        assert alignment_sample(direction, deltas).value == pytest.approx(float(published[f"align_{part}_s"]), rel=1e-6)
        assert alignment_mean(direction, deltas).value == pytest.approx(
            float(published[f"align_{part}_sbar"]), rel=1e-6
        )
