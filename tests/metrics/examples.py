"""Evidence of a model that leans on the artifact, drawn image by image from a known world."""

from __future__ import annotations

import numpy as np

from hansfree.metrics import Evidence, Metric, Score

N_POSITIONS = 9


def compute(name: str, evidence: Evidence) -> Score:
    return Metric.named(name)().compute(evidence)


def draw_evidence(seed: int, *, n: int = 240) -> Evidence:
    """Draw ``n`` independent images of 3 unequal classes; class 2 with the artifact is clearly the worst group."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, size=n, p=[0.4, 0.3, 0.3])
    clean = rng.normal(size=(n, 3))
    clean[np.arange(n), labels] += np.array([1.5, 1.8, 0.9])[labels]
    biased = clean + rng.normal(scale=0.3, size=(n, 3))
    biased[:, 0] += rng.lognormal(mean=-0.3, sigma=0.5, size=n)
    # One image's positions share a level and a share of zeros: far from independent.
    positions = 0.3 + rng.normal(size=(n, 1)) + 0.5 * rng.normal(size=(n, N_POSITIONS))
    positions[rng.random((n, N_POSITIONS)) < rng.beta(1, 3, size=(n, 1))] = 0.0
    relevance = rng.beta(2, 5, size=n)
    relevance[rng.random(n) < 0.05] = np.nan
    facts = {"relevance": relevance, **position_facts(positions)}
    return plain_evidence(labels.tolist(), clean, biased, **facts)


def position_facts(positions: np.ndarray) -> dict[str, object]:
    """Return the fields of evidence whose derivatives are these, (images, positions)."""
    signs = np.stack([(positions > 0).sum(1), (positions < 0).sum(1), (positions == 0).sum(1)], axis=1)
    facts = {"derivatives": positions.sum(axis=1), "n_positions": positions.shape[1], "position_signs": signs}
    return {**facts, "position_sizes": np.abs(positions).mean(axis=1)}


def plain_evidence(labels: list[int], clean: object, biased: object, **fields: object) -> Evidence:
    """Return evidence of class 0 as the biased class, from plain lists."""
    return Evidence(
        labels=np.array(labels),
        biased_class=0,
        logits_clean=np.array(clean, dtype=float),
        logits_biased=np.array(biased, dtype=float),
        **fields,  # type: ignore[arg-type]
    )


def one_hot(classes: list[int], n_classes: int) -> np.ndarray:
    """Return logits that predict ``classes``."""
    return np.eye(n_classes)[classes]
