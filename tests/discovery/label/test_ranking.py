"""The ranking: which images come next, and what a fit on few marks says."""

from __future__ import annotations

import numpy as np
import pytest

from hansfree.discovery.label.ranking import (
    MIN_LABELS,
    UNKNOWN,
    Ranking,
)


def sample(n: int = 400, channels: int = 16, every: int = 20) -> tuple[np.ndarray, np.ndarray]:
    truth = np.arange(n) % every == 0
    noise = np.random.default_rng(0).normal(size=(n, channels))
    return (noise + np.outer(truth, np.arange(channels) < 4) * 5).astype(np.float32), truth


def marks_for(truth: np.ndarray, rows: range | list[int]) -> np.ndarray:
    marks = np.full(len(truth), UNKNOWN, dtype=np.int8)
    marks[list(rows)] = truth[list(rows)]
    return marks


def test_five_marks_find_a_clear_artifact() -> None:
    X, truth = sample()
    scores = Ranking(X).score(marks_for(truth, [0, 1, 2, 3, 20]))
    assert scores is not None
    assert (truth[np.argsort(-scores)[:20]]).mean() > 0.9


@pytest.mark.parametrize("rows", [[], [1, 2, 3, 4, 5, 6], [0, 1], [0, 1, 2, 20]])
def test_there_is_no_score_without_enough_marks_or_without_an_artifact(rows: list[int]) -> None:
    X, truth = sample()
    assert Ranking(X).score(marks_for(truth, rows)) is None


def test_five_images_with_the_artifact_are_enough() -> None:
    X, truth = sample()
    rows = np.flatnonzero(truth)[:MIN_LABELS].tolist()
    scores = Ranking(X).score(marks_for(truth, rows))
    assert scores is not None
    assert (truth[np.argsort(-scores)[:20]]).mean() > 0.9


def test_there_is_no_score_where_every_image_carries_it() -> None:
    X, _ = sample(8)
    assert Ranking(X).score(np.ones(8, dtype=np.int8)) is None


def test_scores_do_not_depend_on_the_units_of_a_channel() -> None:
    X, truth = sample()
    marks = marks_for(truth, range(30))
    scale, shift = np.geomspace(1e-3, 1e3, X.shape[1]), np.linspace(-5, 5, X.shape[1])
    one, other = Ranking(X).score(marks), Ranking(X.astype(np.float64) * scale + shift).score(marks)
    np.testing.assert_allclose(one, other, atol=1e-3)


def test_a_dead_channel_does_no_harm() -> None:
    X, truth = sample()
    X[:, 5] = 3
    scores = Ranking(X).score(marks_for(truth, range(30)))
    assert scores is not None
    assert np.isfinite(scores).all()


def test_half_are_the_most_likely_and_half_the_most_uncertain() -> None:
    X, truth = sample()
    ranking, marks = Ranking(X), marks_for(truth, range(30))
    scores = np.linspace(-2, 3, 400)
    chosen = ranking.choose(marks, scores, count=10)
    assert [choice.image for choice in chosen[::2]] == [399, 398, 397, 396, 395]
    assert {choice.why for choice in chosen[::2]} == {"likely"}
    nearest = np.argsort(np.abs(scores))[:5]
    assert sorted(choice.image for choice in chosen[1::2]) == sorted(nearest.tolist())


def test_where_clean_ones_are_short_a_third_are_likely_without() -> None:
    X, truth = sample()
    ranking, marks = Ranking(X), marks_for(truth, range(30))
    scores, short = np.linspace(-2, 3, 400), np.arange(400) % 2 == 0
    chosen = ranking.choose(marks, scores, count=12, short=short)
    assert [choice.why for choice in chosen].count("likely") == 4
    clean = [choice.image for choice in chosen if choice.why == "unlikely"]
    assert len(clean) == 4
    assert all(short[image] and scores[image] < 0 and image >= 30 for image in clean)
    assert max(clean) > 60  # not only the unlikeliest
    assert len({choice.image for choice in chosen}) == 12


def test_what_was_passed_over_comes_last() -> None:
    X, truth = sample(20)
    ranking, marks = Ranking(X), marks_for(truth, range(4))
    shown = np.arange(20) >= 10
    chosen = ranking.choose(marks, np.arange(20.0), count=8, shown=shown)
    assert {choice.image for choice in chosen} <= set(range(4, 10))
    shown[:] = True
    assert len(ranking.choose(marks, np.arange(20.0), count=8, shown=shown)) == 8


def test_the_first_images_are_spread_out() -> None:
    """One image in a hundred lies apart: twelve at random hold it in one case of nine, spread out in most."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 8)).astype(np.float32)
    X[::100] += 30
    nothing = np.full(600, UNKNOWN, dtype=np.int8)
    found = [
        any(choice.image % 100 == 0 for choice in Ranking(X, seed=seed).choose(nothing, None, count=12))
        for seed in range(20)
    ]
    assert np.mean(found) > 0.9


def test_the_first_images_differ_even_where_all_are_equal() -> None:
    X = np.ones((30, 4), dtype=np.float32)
    chosen = Ranking(X).choose(np.full(30, UNKNOWN, dtype=np.int8), None, count=12)
    assert len({choice.image for choice in chosen}) == 12


def test_the_same_seed_shows_the_same_images() -> None:
    X, truth = sample()
    marks = marks_for(truth, [1, 2])
    one, same, other = (Ranking(X, seed=seed).choose(marks, None, count=12) for seed in (1, 1, 2))
    assert one == same != other
    assert not {1, 2} & {choice.image for choice in one}


def test_the_auc_is_of_images_that_were_not_fitted_on() -> None:
    X, truth = sample()
    assert Ranking(X).auc(marks_for(truth, range(100))) == pytest.approx(1, abs=0.05)
    noise = np.random.default_rng(1).normal(size=(400, 60)).astype(np.float32)
    told_apart = Ranking(noise).auc(marks_for(truth, range(100)))  # 60 channels fit 100 marks by heart
    assert told_apart is not None
    assert told_apart < 0.9


@pytest.mark.parametrize("rows", [[], [0], [0, 1, 2, 3, 4], [1, 2, 3, 4, 5], [0, 20, 40, 1, 2, 3, 4]])
def test_there_is_no_auc_of_a_few_images(rows: list[int]) -> None:
    X, truth = sample()
    assert Ranking(X).auc(marks_for(truth, rows)) is None
