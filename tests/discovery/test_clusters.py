"""How odd a group is: far apart, few, surely answered, with a property of its own."""

from __future__ import annotations

import numpy as np

from hansfree.discovery.clustering import Cluster, find_clusters, reduce_features
from hansfree.discovery.properties import Measurements

FIRST, COUNT, APART = 100, 80, 20  # the class's first row among all images, its images, and those apart


def clusters_of(
    *, shift: float, confidence: np.ndarray | None = None, brightness: float = 0.0, tests: int = 3
) -> list[Cluster]:
    rng = np.random.default_rng(0)
    features, values = rng.normal(size=(COUNT, 10)), rng.normal(size=(FIRST + COUNT, 2))
    features[:APART, :4] += shift
    values[FIRST : FIRST + APART, 0] += brightness
    found = find_clusters(
        reduce_features(features),
        np.arange(FIRST, FIRST + COUNT),
        np.zeros(COUNT) if confidence is None else confidence,
        measured=Measurements(("brightness", "contrast"), values),
        label=2,
        class_name="MEL",
        tests=tests,
        seed=0,
    )
    return sorted(found, key=lambda cluster: -cluster.anomaly)


def test_a_group_with_all_signs_is_told_in_words() -> None:
    confidence = np.where(np.arange(COUNT) < APART, 5.0, np.linspace(0, 1, COUNT))
    first, *others = clusters_of(shift=6, confidence=confidence, brightness=4)
    assert first.rows == tuple(range(FIRST, FIRST + APART))
    assert set(first.centre) <= set(first.rows)
    assert (first.label, first.level, first.distinct, first.confidence) == (2, "clear", "brightness", 1.0)
    start = f"{APART} of the {COUNT} images of class 'MEL' are clearly separated from the others: "
    assert first.sentence.startswith(start)
    assert "The model is more confident in them: AUC 1.00. They are brighter: AUC" in first.sentence
    assert "times the 95 % quantile by chance (corrected p < 0.001)" in first.sentence
    assert all(first.anomaly > 1.5 * other.anomaly for other in others)


def test_each_sign_makes_it_odder() -> None:
    confidence = np.where(np.arange(COUNT) < APART, 5.0, 0.0)

    def anomaly(**signs: object) -> float:
        wanted = tuple(range(FIRST, FIRST + APART))
        return next(found.anomaly for found in clusters_of(shift=6, **signs) if found.rows == wanted)

    assert anomaly() < anomaly(confidence=confidence) < anomaly(confidence=confidence, brightness=4)
    assert anomaly(confidence=-confidence) == anomaly()  # unsure is no sign of a shortcut


def test_a_group_that_chance_makes_one_time_in_fourteen_is_listed_as_weak() -> None:
    alone = clusters_of(shift=6, tests=1)[0]
    first = next(each for each in clusters_of(shift=6, tests=round(0.07 / alone.p)) if each.rows == alone.rows)
    assert 0.05 < first.p < 0.1
    assert first.level == "weak"
    assert "are perhaps weakly separated from the others (corrected p = 0.0" in first.sentence


def test_the_rest_of_the_class_is_not_offered() -> None:
    first, *others = clusters_of(shift=6)
    assert first.rows == tuple(range(FIRST, FIRST + APART))
    assert all(found.size <= (COUNT - APART) / 2 for found in others)


def three_groups(brightness: tuple[float, float]) -> list[Cluster]:
    """Return the clusters of a class with two groups apart from it, in different directions."""
    rng = np.random.default_rng(0)
    features, values = rng.normal(size=(120, 10)), rng.normal(size=(120, 2))
    for number, brighter in enumerate(brightness):
        inside = slice(20 * number, 20 * number + 20)
        features[inside, 3 * number : 3 * number + 3] += 6
        values[inside, 0] += brighter
    found = find_clusters(
        reduce_features(features),
        np.arange(120),
        np.zeros(120),
        measured=Measurements(("brightness", "contrast"), values),
        label=0,
        class_name="MEL",
        tests=1,
        seed=0,
    )
    return [cluster for cluster in found if cluster.level != "none"]


def test_two_bright_groups_are_one_finding() -> None:
    (only,) = (found for found in three_groups((4, 4)) if found.distinct == "brightness")
    assert only.rows == tuple(range(40))
    assert "They are brighter" in only.sentence


def test_a_bright_and_a_dark_group_are_not_two_findings() -> None:
    (only,) = (found for found in three_groups((4, -6)) if found.distinct == "brightness")
    assert only.rows in (tuple(range(20)), tuple(range(20, 40)))


def test_a_class_without_groups_is_left_alone() -> None:
    for found in clusters_of(shift=0):
        assert found.level != "clear"
        assert found.anomaly < 0.1
        if found.level == "none":
            assert found.anomaly == 0
            assert "no more separate than by chance" in found.sentence
