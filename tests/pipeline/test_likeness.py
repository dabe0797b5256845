"""Whether what is put in is what the marked images carry: the numbers, slowly; the words, by cases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hansfree._internal.store import open_run
from hansfree.cavs.diagnostics import expected_cosine
from hansfree.pipeline.diagnosis import InsertionSimilarity, compare_insertion
from hansfree.pipeline.experiment import Experiment
from hansfree.report.advice import describe_similarity
from tests.pipeline.test_pair_directions import make_setting


def test_cosine_and_size_are_those_of_the_two_mean_changes(tmp_path: Path) -> None:
    setting = make_setting("signal")
    with open_run(tmp_path / "run", {}) as run:
        experiment = Experiment(setting, run)
        experiment.cav_rows()
        found = compare_insertion(experiment)
        kept = experiment.workspace.activations
    train, bits = kept["train"], np.asarray(kept["train"].has_artifact)
    inside = train.labels == setting.data.biased_class
    pooled = train.pooled.astype(np.float64)
    marked = pooled[inside & bits].mean(axis=0) - pooled[inside & ~bits].mean(axis=0)
    change = kept["val_biased"].pooled.astype(np.float64).mean(axis=0)
    change = change - kept["val_clean"].pooled.astype(np.float64).mean(axis=0)
    cosine = change @ marked / np.linalg.norm(change) / np.linalg.norm(marked)
    assert found.cosine == pytest.approx(cosine, rel=1e-4)
    assert found.size == pytest.approx(change @ marked / (marked @ marked), rel=1e-4)
    assert (found.n_inserted, found.n_labelled) == (len(kept["val_clean"]), int((inside & bits).sum()))


@pytest.mark.parametrize(
    ("cosine", "attainable", "differs", "words"),
    [
        (0.9, 0.95, False, "with a cosine of 0.90"),
        (0.3, 0.95, True, "the two differ"),
        (0.3, 0.4, False, "about 0.40"),
        (0.0, 0.2, False, "n/a"),
    ],
)
def test_noise_is_not_called_unlike(cosine: float, attainable: float, differs: bool, words: str) -> None:
    found = InsertionSimilarity(cosine=cosine, attainable=attainable, size=1.0, n_inserted=9, n_labelled=7)
    assert found.differs == differs
    assert words in describe_similarity(found)


@pytest.mark.parametrize("count", [5, 40])
def test_few_marked_images_lower_what_can_be_attained(count: int) -> None:
    """The same shift in 256 channels of unit noise: its fitted direction misses the truth by what was expected."""
    rng = np.random.default_rng(0)
    truth = np.zeros(256)
    truth[0] = 4.0
    bits = np.arange(5 * count) < count
    cosines, expected = [], []
    for seed in range(20):
        samples = rng.normal(size=(len(bits), 256)) + bits[:, None] * truth
        fitted = samples[bits].mean(axis=0) - samples[~bits].mean(axis=0)
        cosines.append(fitted[0] / np.linalg.norm(fitted))
        expected.append(expected_cosine(samples, bits, cav="signal", seed=seed))
    assert np.mean(expected) == pytest.approx(np.mean(cosines), abs=0.1)
