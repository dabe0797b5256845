"""Has a model forgotten the artifact? Fresh probes, and how soon a head relearns it."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from hansfree._internal.hashing import seeded
from hansfree._internal.statistics import auc
from hansfree.activations import Activations, FeatureSpec, compute_features, cut_at, pool
from hansfree.corrections import Vanilla
from hansfree.corrections.training import FineTuning, Heads, train_heads
from hansfree.data import check_artifact_labels, check_same_images
from hansfree.errors import DataError, OptionError, UndefinedMetricError
from hansfree.evaluation.evaluate import held_out_features, judge_head
from hansfree.metrics import Evidence, FlipRate, ProbabilityChange, Score
from hansfree.models.surgery import Cut, remove_inserted

Floats = NDArray[np.float64]
Sides = tuple[Floats, Floats]  # the same images without and with the artifact, (n, features) each
FOLDS = 5  # parts of the images; each is tested by classifiers that were trained on the others


@dataclass(frozen=True, eq=False)
class Probe:
    """AUC of fresh linear classifiers that tell a model's images with the artifact from the same ones without it.

    That a linear classifier finds nothing does not say that nothing is there.
    """

    layer: Score  # at the layer's pooled output: what a correction of the head leaves as it is
    hidden: Score | None  # at the input of the last layer; None where the model cannot be traced
    logits: Score  # at the output: all that users of the model see
    changes: Floats  # (n,): how far the artifact moves each image's logits, in units of the clean logits' spread
    trunk: str  # fingerprint of the weights up to the layer


@dataclass(frozen=True, eq=False)
class Forgetting:
    """Probes of a model before and after its correction, on the same images."""

    before: Probe
    after: Probe

    def __post_init__(self) -> None:
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
            f"From the logits a fresh linear probe finds the artifact with an AUC of {_both(self, 'logits')}.{hidden} "
            f"{100 * left.value:.0f} ± {100 * left.stderr:.0f} % of the artifact's change of the logits is left. "
            f"At the layer itself the AUC is {layer}."
        )


def probe_artifact(model: nn.Module, *, clean: Activations, biased: Activations, seed: int = 0) -> Probe:
    """Train linear classifiers on a model's features to find the artifact; test each on images it did not see.

    Logistic regression on standardised features, in five folds; both versions of an image are in the same one.

    Args:
        model: corrected or not; the activations, of held-out images without and with the artifact, are of its trunk.
    """
    check_artifact_labels(clean, biased)
    if len(clean) < 2 * FOLDS:
        raise DataError(f"A probe needs at least {2 * FOLDS} images, and there are {len(clean)}.")
    plain, edit = remove_inserted(model)
    cut = cut_at(plain, clean)
    # the class matters to the metrics of `judge_head` only, not to its logits
    found = judge_head(cut, cut.head_parameters(), held_out_features(cut, clean, biased, biased_class=0, edit=edit))
    logits = found.logits_clean, found.logits_biased
    fold_of = np.random.default_rng(seed).permutation(len(clean)) % FOLDS
    hidden: Score | None = None
    if cut.traced:
        last = cut_at(plain, clean, train="last")
        hidden = held_out_auc((_hidden(last, clean, edit), _hidden(last, biased, edit)), fold_of, "hidden")
    layer = np.asarray(clean.pooled, dtype=np.float64), np.asarray(biased.pooled, dtype=np.float64)
    return Probe(
        layer=held_out_auc(layer, fold_of, "layer"),
        hidden=hidden,
        logits=held_out_auc(logits, fold_of, "logits"),
        changes=logit_changes(*logits),
        trunk=clean.trunk,
    )


def held_out_auc(sides: Sides, fold_of: NDArray[np.int64], place: str) -> Score:
    """Return the AUC of fresh classifiers, each on the images of the fold that it was not trained on.

    Scores of different classifiers are never compared. The standard error counts an image's two forms as one.
    """
    features, n = np.concatenate(sides), len(fold_of)
    has_artifact = np.arange(2 * n) >= n
    solver = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    parts = PredefinedSplit(np.tile(fold_of, 2))
    scores = cross_val_predict(solver, features, has_artifact, cv=parts, method="decision_function")
    areas, influence = np.zeros(fold_of.max() + 1), np.zeros(n)
    for fold in range(len(areas)):
        inside = fold_of == fold
        found = auc(scores.reshape(2, n)[:, inside].ravel(), np.repeat([False, True], inside.sum()))
        areas[fold] = found.value * inside.mean()
        influence[inside] = found.influence.reshape(2, -1).sum(0) * inside.mean()
    return Score(f"probe_auc_{place}", float(areas.sum()), float(np.sqrt(np.sum(influence**2))), n)


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


def _hidden(last: Cut, images: Activations, edit: nn.Module | None) -> Floats:
    """Return the input of the last layer with parameters; of maps and tokens the mean over positions."""
    values = compute_features(last, images, FeatureSpec(edit=edit)).values
    flat = [pool(torch.from_numpy(np.array(value)), "mean").numpy() for value in values]
    return np.concatenate(flat, axis=1).astype(np.float64)


def _both(found: Forgetting, place: str) -> str:
    before, after = (getattr(probe, place) for probe in (found.before, found.after))
    return f"{before.value:.2f} ± {before.stderr:.2f} before and {after.value:.2f} ± {after.stderr:.2f} after"


@dataclass(frozen=True)
class RelearningCurve:
    """The artifact's effect on held-out images at the start, and after every epoch on the poisoned images."""

    steps: tuple[int, ...]  # batches seen until then; the first is 0
    flip_rate: tuple[Score, ...]
    probability_change: tuple[Score, ...]  # of the class that the artifact leaks into

    def steps_until(self, change: float) -> float | None:
        """Return after how many steps the probability change reaches ``change``, interpolated; None if it does not."""
        values = [score.value for score in self.probability_change]
        reached = next((i for i, value in enumerate(values) if value >= change), None)
        if not reached:
            return None if reached is None else 0.0
        ends = slice(reached - 1, reached + 1)
        return float(np.interp(change, values[ends], self.steps[ends]))


@dataclass(frozen=True)
class Relearning:
    """Relearning curves of an original model, of its corrected version and, where asked, of a fresh head."""

    original: RelearningCurve
    corrected: RelearningCurve
    fresh: RelearningCurve | None = None  # of a head that never learned anything (`reset_head`)

    @property
    def half(self) -> float:
        """Half of the artifact's effect on the original model."""
        effect = self.original.probability_change[0].value
        if not effect > 0:
            raise DataError(f"The artifact changes the probability of its class by {effect:.3f} in the original model.")
        return effect / 2

    def describe(self) -> str:
        """Say when half of the effect is back, against a head that has to learn it for the first time."""
        curve = self.corrected
        start, end = curve.probability_change[0].value, curve.probability_change[-1].value
        back = "was never gone" if start >= self.half else f"is back {_when(curve, self.half)}"
        fresh = "" if self.fresh is None else f"; a fresh head reaches it {_when(self.fresh, self.half)}"
        return (
            f"The artifact changes the probability of its class by {2 * self.half:.2f} in the original model, by "
            f"{start:.2f} in the corrected one, and by {end:.2f} after {curve.steps[-1]} steps on the poisoned images. "
            f"Half of the effect {back}{fresh}."
        )


def relearn(
    model: nn.Module,
    poisoned: Activations,
    *,
    clean: Activations,
    biased: Activations,
    biased_class: int,
    tuning: FineTuning | None = None,
) -> RelearningCurve:
    """Fine-tune a copy of the head on the poisoned images, without any penalty, and watch the artifact come back.

    Layers up to the activations' stay unchanged, and so does what a correction put behind the layer (P-ClArC).

    Args:
        poisoned: the training images, where the artifact is tied to a class.
        clean: held-out images without the artifact; ``biased`` are the same with it.
        tuning: the same for all heads that are compared.
    """
    tuning = tuning or FineTuning()
    if tuning.optimizer == "converged":
        raise OptionError("Relearning is counted in steps, which optimizer='converged' has none of: use sgd or adam.")
    check_artifact_labels(clean, biased)
    check_same_images(clean, biased)
    plain, edit = remove_inserted(model)
    cut = cut_at(plain, poisoned)
    method = Vanilla(tuning=tuning)
    method.check(cut, poisoned)
    without, within = (compute_features(cut, images, FeatureSpec(edit=edit)) for images in (clean, biased))

    def watch(heads: Heads) -> list[tuple[Score, Score]]:
        evidence = Evidence(
            labels=without.labels,
            biased_class=biased_class,
            logits_clean=heads.logits(without)[0].numpy(),
            logits_biased=heads.logits(within)[0].numpy(),
        )
        return [(FlipRate().compute(evidence), ProbabilityChange().compute(evidence))]

    start = watch(Heads(cut, 1, tuning.device))
    features = compute_features(cut, poisoned, FeatureSpec(edit=edit))
    (trained,) = train_heads(cut, features, method, [0.0], watch=watch, label="relearning")
    points = [*start, *trained.history]
    per_epoch = -(-len(features) // tuning.batch_size)
    return RelearningCurve(
        steps=tuple(per_epoch * epoch for epoch in range(len(points))),
        flip_rate=tuple(flips for flips, _ in points),
        probability_change=tuple(change for _, change in points),
    )


def reset_head(model: nn.Module, activations: Activations, *, seed: int = 0) -> nn.Module:
    """Return a copy of the model with a fresh head: what was really forgotten takes as long to learn as with it.

    Batch norms stay unchanged, for no correction trains them.
    """
    plain, _ = remove_inserted(model)
    cut = cut_at(plain, activations)
    owners = sorted({name.rpartition(".")[0] for name in cut.trainable})
    fresh = copy.deepcopy(plain)
    modules = {owner: fresh.get_submodule(owner) for owner in owners}
    fixed = [owner or "the model" for owner, module in modules.items() if not hasattr(module, "reset_parameters")]
    if fixed:
        raise DataError(f"{', '.join(fixed)} of {type(model).__name__} cannot start anew: no reset_parameters.")
    with seeded(seed):
        for module in modules.values():
            module.reset_parameters()  # type: ignore[operator]
    return fresh


def _when(curve: RelearningCurve, change: float) -> str:
    steps = curve.steps_until(change)
    return f"not within {curve.steps[-1]} steps" if steps is None else f"after {steps:.0f} steps"
