"""Properties against label and error, in numbers and in words."""

from __future__ import annotations

import numpy as np
import pytest

from hansfree.discovery.properties import Measurements, compare_properties, format_p

NAMES = ("MEL", "NV", "BCC")


def compare(values: np.ndarray, labels: np.ndarray, is_wrong: np.ndarray) -> dict[tuple[str, int], object]:
    measured = Measurements(("brightness", "contrast", "sharpness"), values)
    return compare_properties(measured, labels, is_wrong, class_names=NAMES, permutations=99, seed=0)


@pytest.fixture
def world() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images of MEL are brighter, and the model errs on those that are not."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 60)
    values = rng.normal(size=(180, 3))
    values[labels == 0, 0] += 1.2
    is_wrong = (labels == 0) & (values[:, 0] < 0.7)
    return values, labels, is_wrong


def test_the_oddest_property_is_first_with_its_sentence(
    world: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    first, *others = compare(*world)
    assert (first.name, first.label, first.level) == ("brightness", 0, "clear")
    assert first.auc > 0.7
    assert first.error_auc == 0  # all wrong ones are darker than all right ones
    assert first.anomaly == pytest.approx(2 * first.auc - 1 + 1)
    assert first.sentence == (
        f"Images of class 'MEL' are brighter than the others: AUC {first.auc:.2f} (corrected p = 0.010). Among them "
        "the model makes fewer errors on images that are brighter: AUC 1.00 (corrected p = 0.010)."
    )
    assert {found.name for found in others} == {"brightness", "contrast", "sharpness"}
    assert all(found.anomaly == 0 for found in others if found.name != "brightness")


def test_errors_the_other_way_are_told_but_not_odd(world: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    values, labels, _ = world
    first, *_ = compare(values, labels, (labels == 0) & (values[:, 0] > 1.5))
    assert first.anomaly == pytest.approx(2 * first.auc - 1)
    assert "more errors on images that are brighter" in first.sentence


def test_less_of_a_property_has_its_own_word(world: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    values, labels, is_wrong = world
    first, *_ = compare(-values, labels, is_wrong)
    assert first.auc < 0.3
    assert "are darker than the others" in first.sentence
    assert "fewer errors on images that are darker" in first.sentence


def test_a_property_that_only_goes_with_the_errors_is_told_weakly() -> None:
    """As where an artifact is in few images of its class: the class hardly differs."""
    values, labels = np.random.default_rng(1).normal(size=(180, 3)), np.repeat([0, 1, 2], 60)
    first, *others = compare(values, labels, (labels == 0) & (values[:, 0] < 0))
    assert (first.name, first.label, first.level) == ("brightness", 0, "weak")
    assert first.anomaly == pytest.approx(1)
    assert first.sentence.startswith(
        "In class 'MEL' the model makes fewer errors on images that are brighter: AUC 1.00 ("
    )
    assert first.sentence.endswith("The class itself does not differ from the others in brightness.")
    assert all(found.anomaly == 0 for found in others)


def test_what_is_clear_comes_before_what_is_odder_but_weak() -> None:
    """As in a real folder: the errors went with six properties that the class did not differ in."""
    labels = np.repeat([0, 1, 2], 60)
    values = np.random.default_rng(1).normal(size=(180, 3))
    values[labels == 1, 1] += 0.9
    first, *others = (each for each in compare(values, labels, (labels == 0) & (values[:, 0] < 0)) if each.anomaly)
    assert (first.name, first.label, first.level) == ("contrast", 1, "clear")
    last = others[-1]
    assert (last.name, last.level) == ("brightness", "weak")  # only its errors differ
    assert last.anomaly > first.anomaly


def test_nothing_is_claimed_of_noise() -> None:
    rng = np.random.default_rng(2)
    found = compare(rng.normal(size=(180, 3)), np.repeat([0, 1, 2], 60), np.zeros(180, dtype=bool))
    assert len(found) == 3  # the oddest class of each, so that its p-value can be seen
    assert all((each.level, each.anomaly, each.error_auc) == ("none", 0, None) for each in found)
    assert all("do not differ from the others" in each.sentence for each in found)


@pytest.mark.parametrize(("p", "text"), [(0.0004, "< 0.001"), (0.0213, "= 0.021"), (0.5, "= 0.50")])
def test_p_values_are_short(p: float, text: str) -> None:
    assert format_p(p) == f"corrected p {text}"
