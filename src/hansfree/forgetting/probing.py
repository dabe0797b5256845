"""A fresh probe: can a new linear classifier still read the artifact from what a corrected model computes?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from torch import nn

from hansfree.activations import Activations, compute_features, cut_again
from hansfree.activations.positions import pool
from hansfree.datasets.pairs import check_bits
from hansfree.errors import DataError, OptionError, UndefinedMetricError
from hansfree.evaluation import held_out_features, judge_head
from hansfree.metrics import Score
from hansfree.metrics.auroc import area_under
from hansfree.splitting import Split, take_out

Floats = NDArray[np.float64]
Sides = tuple[Floats, Floats]  # the same images without and with the artifact, (n, features) each


@dataclass(frozen=True, eq=False)
class Probe:
    """How well fresh linear classifiers tell one model's images with the artifact from the same ones without it.

    An AUC of 0.5 is a coin, 1 is every time. That a linear classifier finds nothing does not say that nothing is there.
    """

    layer: Score  # at the layer's pooled output: what a correction of the head leaves as it is
    hidden: Score | None  # at the input of the last layer; None where the model cannot be traced
    logits: Score  # at the output: all that users of the model see
    changes: Floats  # (n,): how far the artifact moves each image's logits, see `change`
    trunk: str  # fingerprint of the weights up to the layer

    @property
    def change(self) -> Score:
        """The mean change of the logits by the artifact, in units of their spread between clean images.

        Without that unit, a correction that makes all logits smaller would look like one that forgets.
        """
        n = len(self.changes)
        return Score("logit_change", float(self.changes.mean()), float(self.changes.std(ddof=1) / np.sqrt(n)), n)


@dataclass(frozen=True, eq=False)
class Forgetting:
    """Probes of a model before and after its correction, on the same images."""

    before: Probe
    after: Probe

    def __post_init__(self) -> None:
        """Refuse probes of different images."""
        if len(self.before.changes) != len(self.after.changes):
            raise DataError(
                f"The probes saw {len(self.before.changes)} and {len(self.after.changes)} images: take the same."
            )

    @property
    def remaining(self) -> Score:
        """The share of the artifact's change of the logits that is left; its error is paired by image."""
        before, after = self.before.changes, self.after.changes
        if not before.mean() > 0:
            raise UndefinedMetricError("The artifact did not change the logits before, so no share of it can be left.")
        share = after.mean() / before.mean()
        influence = (after - share * before) / before.mean()
        stderr = influence.std(ddof=1) / np.sqrt(len(before))
        return Score("logit_change_remaining", float(share), float(stderr), len(before))

    def describe(self) -> str:
        """Say in a few sentences what was forgotten and what was not."""
        hidden = "" if self.after.hidden is None else f" From the last hidden features: {_both(self, 'hidden')}."
        left = self.remaining
        layer = (
            f"{self.after.layer.value:.2f}: a correction of the head leaves the layers before it as they are, so they "
            "still hold the artifact, and a new head could use it"
            if self.before.trunk == self.after.trunk
            else _both(self, "layer")
        )
        return (
            f"From the logits a fresh linear probe tells the artifact with an AUC of {_both(self, 'logits')}.{hidden} "
            f"{100 * left.value:.0f} ± {100 * left.stderr:.0f} % of the artifact's change of the logits is left. "
            f"At the layer itself the AUC is {layer}."
        )


def probe_artifact(
    model: nn.Module, *, clean: Activations, biased: Activations, folds: int = 5, seed: int = 0
) -> Probe:
    """Train linear classifiers on a model's own numbers to find the artifact, and test each on images it did not see.

    An image without and with the artifact is always in the same fold. Logistic regression on standardised features.

    Args:
        model: corrected or not; the activations are of its own trunk.
        clean: held-out images without the artifact.
        biased: the same images with it.
        folds: parts of the images; each is tested by classifiers that were trained on the others.
    """
    check_bits(clean, biased)
    if not 2 <= folds <= len(clean) // 2:
        raise OptionError(f"folds is {folds}; for {len(clean)} images 2 to {len(clean) // 2} are possible.")
    plain, edit = take_out(model)
    cut = cut_again(plain, clean)
    # the class matters to the metrics of `judge_head` only, not to its logits
    found = judge_head(cut, cut.head_parameters(), held_out_features(cut, clean, biased, biased_class=0, edit=edit))
    logits = found.logits_clean, found.logits_biased
    fold_of = np.random.default_rng(seed).permutation(len(clean)) % folds
    hidden: Sides | None = None
    if cut.traced:
        last = cut_again(plain, clean, train="last")
        hidden = _hidden(last, clean, edit), _hidden(last, biased, edit)
    layer = np.asarray(clean.pooled, dtype=np.float64), np.asarray(biased.pooled, dtype=np.float64)
    return Probe(
        layer=held_out_auc(layer, fold_of, "layer"),
        hidden=None if hidden is None else held_out_auc(hidden, fold_of, "hidden"),
        logits=held_out_auc(logits, fold_of, "logits"),
        changes=logit_changes(*logits),
        trunk=clean.trunk,
    )


def held_out_auc(sides: Sides, fold_of: NDArray[np.int64], group: str) -> Score:
    """Return the AUC of fresh classifiers, each on the images of the fold that it was not trained on.

    Scores of different classifiers are never compared. The standard error counts an image's two forms as one.
    """
    clean, biased = sides
    areas, influence = np.zeros(fold_of.max() + 1), np.zeros(len(clean))
    for fold in range(len(areas)):
        inside = fold_of == fold
        weights = _fit_probe(clean[~inside], biased[~inside])
        scores = np.concatenate([clean[inside], biased[inside]]) @ weights
        area, shares = area_under(scores, np.arange(len(scores)) >= inside.sum())
        areas[fold] = area * inside.mean()
        influence[inside] = shares.reshape(2, -1).sum(0) * inside.mean()
    return Score("probe_auc", float(areas.sum()), float(np.sqrt(np.sum(influence**2))), len(clean), group)


def logit_changes(clean: Floats, biased: Floats) -> Floats:
    """Return how far the artifact moves each image's logits, in units of the clean logits' spread, (n,).

    What all logits of an image have in common changes no probability, and does not count.
    """
    centred = clean - clean.mean(axis=1, keepdims=True)
    moved = biased - biased.mean(axis=1, keepdims=True) - centred
    spread = np.sqrt(centred.var(axis=0).sum())
    if not (np.isfinite(moved).all() and spread > 0):
        raise UndefinedMetricError("The change of the logits has no unit: they are all alike, or not finite.")
    lengths: Floats = np.linalg.norm(moved, axis=1) / spread
    return lengths


def _hidden(last: Split, images: Activations, edit: nn.Module | None) -> Floats:
    """Return the input of the last layer with parameters; of maps and tokens the mean over positions."""
    values = compute_features(last, images, edit=edit).values
    flat = [pool(torch.from_numpy(np.array(value)), "mean").numpy() for value in values]
    return np.concatenate(flat, axis=1).astype(np.float64)


def _fit_probe(clean: Floats, biased: Floats) -> Floats:
    """Return the weights of a logistic regression on standardised features, for features as they are."""
    features = np.concatenate([clean, biased])
    width = features.std(axis=0)
    width[width == 0] = 1.0  # a feature that never changes has weight zero in any case
    bits = np.arange(len(features)) >= len(clean)
    solver = LogisticRegression(max_iter=1000).fit((features - features.mean(axis=0)) / width, bits)
    weights: Floats = solver.coef_[0] / width
    return weights


def _both(found: Forgetting, place: str) -> str:
    before, after = (getattr(probe, place) for probe in (found.before, found.after))
    return f"{before.value:.2f} ± {before.stderr:.2f} before and {after.value:.2f} ± {after.stderr:.2f} after"
