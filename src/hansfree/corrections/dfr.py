"""DFR, deep feature reweighting: the last layer anew, on balanced groups (Kirichenko et al., 2023)."""

from __future__ import annotations

import logging

import numpy as np
import torch
from torch import Tensor, nn

from hansfree.activations import Activations, Features, compute_features
from hansfree.corrections.base import MethodInfo, Need
from hansfree.corrections.latent import LatentCorrection, count_classes
from hansfree.corrections.training import Heads, Solve, balanced_weights, check_float64, minimise
from hansfree.errors import DataError, SplitError
from hansfree.models.surgery import Cut
from hansfree.reasons import Reason, ReasonCode

log = logging.getLogger(__name__)
GRADIENT_TOLERANCE = 1e-8  # of the largest component
MAX_GRADIENT = 1e-4  # warn above: the solver stopped before the minimum


class DFR(LatentCorrection, name="dfr"):
    """Retrain the last linear layer from nothing, with every group (a class without or with the artifact) equal.

    A converged logistic regression: epochs, rate and seed are not used. The strength multiplies the squared weights (of
    inputs of mean 0 and deviation 1). Groups without training images cannot be balanced: where only one class carries
    the artifact, it stays a sign of that class.
    """

    rank = 9
    info = MethodInfo(
        title="DFR",
        strengths=(1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0),
        needs=frozenset({Need.ARTIFACT_LABELS}),
        uses_seed=False,
        paper_strengths=(1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0),
    )

    def check(self, cut: Cut, activations: Activations) -> None:
        """Raise for data without artifact labels or images of a class, and for a last layer that is not linear."""
        super().check(cut, activations)
        check_float64(self.tuning.device)
        if activations.has_artifact is None:
            raise DataError(
                "DFR balances classes without and with the artifact: it needs to know which images have it."
            )
        missing = set(range(count_classes(cut, activations))) - set(np.unique(activations.labels).tolist())
        if missing:
            raise DataError(f"DFR trains the last layer anew, but there is no image of class {min(missing)}.")
        if type(cut.head.get_submodule(_last(cut))) is not nn.Linear:
            raise SplitError(f"DFR retrains a linear layer, but the last one of the model is {_last(cut)!r}.")

    def details(self, train: Activations, *, clean: Activations, biased: Activations | None) -> tuple[Reason, ...]:
        """Return which groups are empty, if any."""
        empty = empty_groups(train)
        return (Reason(ReasonCode.EMPTY_GROUPS, empty),) if any(empty.values()) else ()

    def solution(self, cut: Cut, activations: Activations) -> tuple[Solve, float]:
        """Solve for the last layer."""
        if any((empty := empty_groups(activations)).values()):
            sentences = [
                f"{word} training image of class {', '.join(map(str, labels))} has the artifact."
                for word, labels in zip(("Every", "No"), empty.values())
                if labels
            ]
            log.warning("%s DFR balances the groups that are there.", " ".join(sentences))
        features = compute_features(cut, activations, self.features(activations))
        inputs = _inputs_of_last(cut, features, self.tuning.device).double()
        labels = torch.from_numpy(np.array(activations.labels)).to(inputs.device)
        weights = torch.from_numpy(group_weights(activations)).to(inputs.device)
        linear = cut.head.get_submodule(_last(cut))
        # Without a bias nothing can take up a mean.
        center = torch.zeros_like(inputs[0]) if linear.bias is None else weights @ inputs
        spread = (weights @ (inputs - center).square()).sqrt()
        spread = torch.where(spread > 0, spread, torch.ones_like(spread))
        values = (inputs - center) / spread

        def fit(strength: float) -> tuple[dict[str, Tensor], float]:
            tensors = {
                name: torch.zeros_like(parameter, dtype=torch.float64, device=inputs.device).requires_grad_()
                for name, parameter in linear.named_parameters()
            }

            def loss() -> Tensor:
                logits = nn.functional.linear(values, tensors["weight"], tensors.get("bias"))
                wrong = nn.functional.cross_entropy(logits, labels, reduction="none") @ weights
                return wrong + strength * tensors["weight"].square().sum()

            gradient = minimise(loss, tensors.values(), tolerance=GRADIENT_TOLERANCE)
            found = {name: tensor.detach() for name, tensor in tensors.items()}
            found["weight"] = found["weight"] / spread
            if "bias" in found:
                found["bias"] = found["bias"] - found["weight"] @ center
            return {f"{_last(cut)}.{name}": tensor for name, tensor in found.items()}, gradient

        return fit, MAX_GRADIENT


def group_weights(activations: Activations) -> np.ndarray:
    """Return what each image counts, so that all groups that have images count the same and all together 1."""
    groups = 2 * np.asarray(activations.labels) + np.asarray(activations.has_artifact, dtype=np.int64)
    return balanced_weights(groups) / len(groups)


def empty_groups(activations: Activations) -> dict[str, list[int]]:
    """Return the classes all of whose training images have the artifact, and those of which none has it."""
    labels, bits = np.asarray(activations.labels), np.asarray(activations.has_artifact, dtype=bool)
    return {
        "only_with": np.setdiff1d(labels, labels[~bits]).tolist(),
        "only_without": np.setdiff1d(labels, labels[bits]).tolist(),
    }


def _last(cut: Cut) -> str:
    return cut.trainable[-1].rpartition(".")[0]


def _inputs_of_last(cut: Cut, features: Features, device: str) -> Tensor:
    """Return what the last layer reads, for every image; one whose outputs are not the logits is an error."""
    seen: list[Tensor] = []
    linear = cut.head.get_submodule(_last(cut))
    handle = linear.register_forward_pre_hook(lambda _module, given: seen.append(given[0].detach().clone()))
    try:
        logits = Heads(cut, 1, device).logits(features)[0]
    finally:
        handle.remove()
    inputs = torch.cat(seen) if seen else torch.zeros(0)
    found = linear(inputs.to(next(linear.parameters()).device)).detach().cpu() if inputs.ndim == 2 else torch.zeros(0)
    if found.shape != logits.shape or not torch.allclose(found, logits, rtol=1e-3, atol=1e-4):
        raise SplitError(
            f"DFR retrains the layer that gives the logits, but those of {_last(cut)!r} are changed later."
        )
    return inputs
