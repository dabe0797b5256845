"""What heads do on the validation images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.func import jvp

from hansfree.activations import Features
from hansfree.errors import UndefinedMetricError
from hansfree.metrics import (
    BalancedAccuracyBiased,
    BalancedAccuracyClean,
    Evidence,
    Score,
    lost_classes,
    predict_classes,
)
from hansfree.splitting import Split, exact_forward_mode
from hansfree.training import Heads, WeightedHead


@dataclass(frozen=True)
class Validation:
    """What one head did on the validation images, without and with the artifact."""

    clean: Score  # balanced accuracy
    biased: Score | None  # None where too few images with the artifact leave it unknown
    is_finite: bool
    lost: tuple[int, ...]  # classes that the original model answers and this head never does
    derivative: float | None = None  # mean |u|, where it was asked for
    by_class: Mapping[int, float] = field(default_factory=dict)  # accuracy on clean images, of classes that count

    def drops(self, later: Validation) -> dict[int, float]:
        """Return by how much the accuracy of each class is lower in another head."""
        return {label: self.by_class[label] - later.by_class[label] for label in self.by_class.keys() & later.by_class}


@dataclass(frozen=True, eq=False)
class Validator:
    """Judges heads on validation images without and with the artifact.

    Args:
        biased: None where there are none.
        least: Images that a class needs for its accuracy to count; that of fewer cannot be known.
        probed: Images with tangents along the artifact's shift, to measure ``u`` on; empty where it is not needed.
    """

    clean: Features
    biased: Features | None
    biased_class: int
    original: np.ndarray  # the original model's predictions on the clean images
    inserted: bool = True  # the biased images are the clean ones with the artifact put in
    least: int = 1
    probed: tuple[Features, ...] = ()

    def __call__(self, heads: Heads) -> list[Validation]:
        """Return what every head does; the watch of the training loop."""
        clean = heads.logits(self.clean).numpy()
        biased = clean[:, :0] if self.biased is None else heads.logits(self.biased).numpy()
        sizes = slope_sizes(heads, self.probed, self.biased_class) if self.probed else [None] * heads.count
        weights_are_finite = heads.are_finite()
        return [self._judge(clean[i], biased[i], weights_are_finite[i], sizes[i]) for i in range(heads.count)]

    def _judge(self, clean: np.ndarray, biased: np.ndarray, weights_are_finite: bool, size: float | None) -> Validation:
        known = has_enough(self.clean.labels, self.least)
        labels_biased = np.zeros(0, dtype=np.int64) if self.biased is None else self.biased.labels
        evidence = Evidence(
            labels=self.clean.labels[known],
            biased_class=self.biased_class,
            logits_clean=clean[known],
            logits_biased=biased[known] if self.inserted else biased,
            labels_biased=None if self.inserted else labels_biased,
        )
        answers = predict_classes(clean)
        finite = weights_are_finite and bool(np.isfinite(clean).all() and np.isfinite(biased).all())
        return Validation(
            clean=BalancedAccuracyClean().compute(evidence),
            biased=self._biased_score(evidence),
            is_finite=finite and (size is None or bool(np.isfinite(size))),
            lost=lost_classes(self.original, answers, clean.shape[1]),
            derivative=size,
            by_class={
                int(label): float((answers[self.clean.labels == label] == label).mean())
                for label in np.unique(evidence.labels)
            },
        )

    def _biased_score(self, evidence: Evidence) -> Score | None:
        try:
            return BalancedAccuracyBiased(least=self.least).compute(evidence)
        except UndefinedMetricError:
            return None


def first_classes(cut: Split, clean: Features, device: str = "cpu") -> np.ndarray:
    """Return what the model as it came answers: the ``original`` of a `Validator` of its heads."""
    return predict_classes(Heads(cut, 1, device).logits(clean)[0].double().numpy())


@torch.no_grad()
def slope_sizes(heads: Heads, probed: Iterable[Features], label: int, *, batch_size: int = 256) -> list[float]:
    """Return per head the mean over images of ``|u|``: how far one step along the tangents moves a class's log-odds.

    Of the log-odds and not of the logit: what moves all logits alike changes no answer.
    """
    heads.cut.eval_mode()
    found = []
    for features in probed:
        for start in range(0, len(features), batch_size):
            values, tangents = heads.rows(features, slice(start, start + batch_size))
            steps = tuple(tangent[0] for tangent in tangents)

            def slope(
                head: WeightedHead, values: tuple[Tensor, ...] = values, steps: tuple[Tensor, ...] = steps
            ) -> Tensor:
                return jvp(lambda *inputs: log_odds(head(*inputs), label), values, steps)[1]  # type: ignore[no-any-return]

            with exact_forward_mode():
                found.append(heads.each(slope).abs().double().cpu())
    return torch.cat(found, dim=1).mean(1).tolist()


def log_odds(logits: Tensor, label: int) -> Tensor:
    """Return the log of a class's probability over that of all others together, ``(n,)``."""
    others = torch.cat([logits[:, :label], logits[:, label + 1 :]], dim=1)
    return logits[:, label] - others.logsumexp(1)


def has_enough(labels: np.ndarray, least: int) -> np.ndarray:
    """Return per image whether its class has at least so many."""
    _, place, counts = np.unique(labels, return_inverse=True, return_counts=True)
    enough: np.ndarray = (counts >= least)[place]
    return enough
