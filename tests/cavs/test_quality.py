from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from hansfree.cavs import SignalCAV
from hansfree.cavs.quality import (
    alignment_mean,
    alignment_sample,
    cav_auc,
)
from hansfree.errors import DataError, UndefinedMetricError
from tests.cavs.samples import activations


def changes(n=50, channels=4, *, seed=0, noise=1.0):
    rng = np.random.default_rng(seed)
    return np.array([1.0, 2.0, 0.0, 0.0])[:channels] + noise * rng.normal(size=(n, channels))


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
def test_standard_error_is_the_spread_over_new_samples(measure):
    h = np.array([1.0, 0.5, 0.2, 0.0])
    qualities = [measure(h, changes(60, seed=seed)) for seed in range(400)]
    spread = np.std([quality.value for quality in qualities], ddof=1)
    assert np.mean([quality.standard_error for quality in qualities]) == pytest.approx(spread, rel=0.15)


@pytest.mark.parametrize("measure", [alignment_sample, alignment_mean])
def test_samples_that_did_not_change_are_left_out(measure):
    h, deltas = np.arange(1.0, 5.0), changes()
    padded = measure(h, np.concatenate([deltas, np.zeros((7, 4))]))
    plain = measure(h, deltas)
    assert (padded.value, padded.standard_error) == (plain.value, plain.standard_error)
    assert padded.n == 50


@pytest.mark.parametrize("measure", [alignment_sample, alignment_mean])
def test_one_sample_has_no_standard_error(measure):
    assert measure([1.0, 0.0], [[3.0, 4.0]]).value == pytest.approx(0.6)
    assert measure([1.0, 0.0], [[3.0, 4.0]]).standard_error is None


@pytest.mark.parametrize("measure", [alignment_sample, alignment_mean])
def test_alignment_of_nothing_is_an_error(measure):
    with pytest.raises(UndefinedMetricError, match="changed none of the 5 samples"):
        measure([1.0, 0.0], np.zeros((5, 2)))
    with pytest.raises(DataError, match="has no length"):
        measure([0.0, 0.0], [[1.0, 0.0]])
    with pytest.raises(DataError, match="NaN"):
        measure([1.0, 0.0], [[np.nan, 0.0]])
    with pytest.raises(DataError, match=r"\(2,\) and \(1, 3\)"):
        measure([1.0, 0.0], [[1.0, 0.0, 0.0]])


def test_changes_that_cancel_have_no_mean_direction():
    with pytest.raises(UndefinedMetricError, match="mean change over 2 samples is zero"):
        alignment_mean([1.0, 0.0], [[1.0, 1.0], [-1.0, -1.0]])


def test_auc_and_its_error_equal_the_double_loop():
    X, bits = activations(90, size=0.6)
    cav = SignalCAV().fit(X[:45], bits[:45])
    X, bits = X[45:].round(1), bits[45:]  # rounded, for ties
    scores = cav.decision_function(X)
    wins = np.array([[(p > q) + 0.5 * (p == q) for q in scores[~bits]] for p in scores[bits]])
    quality = cav_auc(cav, X, bits)
    assert quality.value == pytest.approx(roc_auc_score(bits, scores))
    assert quality.value == pytest.approx(wins.mean())
    variance = wins.mean(1).var(ddof=1) / bits.sum() + wins.mean(0).var(ddof=1) / (~bits).sum()
    assert quality.standard_error == pytest.approx(np.sqrt(variance))
    assert quality.n == 45


def test_auc_of_one_class_or_foreign_labels_is_an_error():
    X, bits = activations()
    cav = SignalCAV().fit(X, np.where(bits, "ruler", "clean"))
    with pytest.raises(UndefinedMetricError, match="have the label 'ruler'"):
        cav_auc(cav, X[bits], np.full(bits.sum(), "ruler"))
    with pytest.raises(DataError, match="'hair' is not one of"):
        cav_auc(cav, X, np.where(bits, "hair", "clean"))
    with pytest.raises(DataError, match="one label"):
        cav_auc(cav, X, ["clean"])


def test_auc_with_a_single_artifact_sample_has_no_standard_error():
    X, bits = activations()
    cav = SignalCAV().fit(X, bits)
    few = np.append(np.flatnonzero(~bits), np.flatnonzero(bits)[0])
    assert cav_auc(cav, X[few], bits[few]).standard_error is None
