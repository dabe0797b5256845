"""Proposed bits are no truth: only marked images are examined, or it is said that nothing is."""

from __future__ import annotations

import numpy as np
import pytest

from hansfree.cavs.diagnostics import choose_basis, examine_cav


@pytest.fixture
def proposed() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Activations without an artifact, bits that were read off from them, and marks of a person, who flips a coin."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6))
    bits = X[:, 0] > 0
    is_marked = np.arange(200) < 60
    bits[is_marked] = rng.random(60) < 0.5
    return X, bits, is_marked


def test_proposed_bits_do_not_count_as_truth(proposed: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    X, bits, is_marked = proposed
    blind = examine_cav(X, bits)
    assert blind.finding("held_out_auc").value > 0.75  # agreement with itself
    basis = choose_basis(bits, is_marked)
    found = basis.tell(examine_cav(X[basis.rows], bits[basis.rows]))
    assert np.array_equal(basis.rows, np.arange(60))
    assert found.level == "poor"
    assert found.finding("held_out_auc").value < 0.7
    assert "Only the 60 marked images were examined; the other 140" in found.verdict


def test_too_few_marks_are_said_first_and_never_good(proposed: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    X, _, _ = proposed
    bits, is_marked = X[:, 0] > 0, np.arange(200) < 3
    basis = choose_basis(bits, is_marked)
    found = examine_cav(X, bits)
    told = basis.tell(found)
    assert len(basis.rows) == 200
    assert found.level != "poor"
    assert told.level == "unknown"
    assert told.verdict.startswith(
        "This measures agreement with the labelling page's own proposal, not the truth: 197 of"
    )
    assert told.verdict.endswith(found.verdict)


@pytest.mark.parametrize("is_marked", [None, np.ones(200, dtype=bool)])
def test_without_proposed_bits_nothing_changes(
    proposed: tuple[np.ndarray, np.ndarray, np.ndarray], is_marked: np.ndarray | None
) -> None:
    X, bits, _ = proposed
    basis, found = choose_basis(bits, is_marked), examine_cav(X, bits)
    assert basis.tell(found) is found
    assert len(basis.rows) == 200
