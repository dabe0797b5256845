"""What a head does to held-out images without and with the artifact, all from the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

from hansfree.activations import Activations, Features, compute_features, cut_again
from hansfree.activations.positions import along
from hansfree.cavs import CAV
from hansfree.datasets.pairs import check_bits, check_same_images
from hansfree.errors import DataError
from hansfree.metrics import Evidence, Score, compute_scores
from hansfree.splitting import Split, exact_forward_mode, take_out

State = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Held-out images without and with the artifact, at the head's input."""

    clean: Features
    biased: Features  # with tangents along the CAV when one was given
    biased_class: int
    inserted: bool = True  # the biased images are the clean ones with the artifact put in

    @property
    def labels_biased(self) -> np.ndarray | None:
        """The biased images' own labels, where they are not the clean images'."""
        return None if self.inserted else self.biased.labels


def pair_features(
    cut: Split,
    clean: Activations,
    biased: Activations,
    *,
    biased_class: int,
    inserted: bool = True,
    cav: CAV | None = None,
    edit: nn.Module | None = None,
) -> Pairs:
    """Prepare held-out images for many heads.

    Args:
        inserted: The two sets hold the same images in the same order; False where the artifact is in the scenes.
    """
    if inserted:
        check_same_images(clean, biased)
    if (clean.layer, clean.trunk) != (biased.layer, biased.trunk):
        raise DataError("The activations of the clean and the biased set come from different layers or models.")
    directions = None if cav is None else cav.directions_[:1]
    return Pairs(
        compute_features(cut, clean, edit=edit),
        compute_features(cut, biased, edit=edit, directions=directions),
        biased_class,
        inserted,
    )


def judge_head(
    cut: Split,
    state: State,
    pairs: Pairs,
    *,
    position_signs: np.ndarray | None = None,
    relevance: np.ndarray | None = None,
) -> Evidence:
    """Gather what one head does, as evidence for the metrics."""
    clean, _ = _outputs(cut, state, pairs.clean, pairs.biased_class)
    biased, derivatives = _outputs(cut, state, pairs.biased, pairs.biased_class)
    return Evidence(
        labels=pairs.clean.labels,
        biased_class=pairs.biased_class,
        logits_clean=clean,
        logits_biased=biased,
        labels_biased=pairs.labels_biased,
        derivatives=derivatives,
        n_positions=pairs.biased.n_positions,
        position_signs=position_signs,
        relevance=relevance,
    )


@torch.no_grad()
def _outputs(
    cut: Split, state: State, features: Features, wanted: int, *, batch_size: int = 256
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the logits and, where there are tangents, the derivative of the wanted class's logit."""
    cut.eval_mode()
    logits, derivatives = [], []
    for start in range(0, len(features), batch_size):
        values, tangents = features.rows(slice(start, start + batch_size))

        def head(*inputs: Tensor) -> Tensor:
            return functional_call(cut.head, dict(state), inputs)  # type: ignore[no-any-return]

        if tangents:
            with exact_forward_mode():
                value, derivative = jvp(head, values, tuple(tangent[0] for tangent in tangents))  # type: ignore[misc]
            derivatives.append(derivative[:, wanted])
        else:
            value = head(*values)
        logits.append(value)
    return torch.cat(logits).numpy(), torch.cat(derivatives).numpy() if derivatives else None


def count_position_signs(
    cut: Split, state: State, biased: Activations, cav: CAV, *, biased_class: int, edit: nn.Module | None = None
) -> np.ndarray:
    """Count per image the positions whose derivative along the CAV is positive, negative and zero, ``(n, 3)``."""
    cut.eval_mode()
    direction = torch.from_numpy(cav.directions_[0]).float()
    counts = []
    for layer, *others in biased.stream(batch_size=64):
        inputs = (layer if edit is None else edit(layer)).detach().requires_grad_()
        logits = functional_call(cut.head, dict(state), cut.phi(inputs, *others))
        (gradient,) = torch.autograd.grad(logits[:, biased_class].sum(), inputs)
        slopes = along(gradient, direction)
        counts.append(torch.stack([(slopes > 0).sum(1), (slopes < 0).sum(1), (slopes == 0).sum(1)], dim=1))
    return torch.cat(counts).numpy()


def evaluate(
    model: nn.Module,
    *,
    clean: Activations,
    biased: Activations,
    biased_class: int,
    inserted: bool = True,
    cav: CAV | None = None,
) -> list[Score]:
    """Score a model, corrected or not, on held-out images without and with the artifact.

    The trunk of a corrected model is the original's, so activations of the original serve for all of them.

    Args:
        biased_class: The class that the artifact leaks into.
        inserted: The biased images are the clean ones with the artifact put in, in the same order; False where the
            artifact is in the scenes, and the two sets hold different images.
        cav: Adds TCAV and sensitivity along its first direction.
    """
    check_bits(clean, biased)
    plain, edit = take_out(model)
    cut = cut_again(plain, clean)
    pairs = pair_features(cut, clean, biased, biased_class=biased_class, inserted=inserted, cav=cav, edit=edit)
    state = cut.head_parameters()
    signs = None
    if cav is not None:
        signs = count_position_signs(cut, state, biased, cav, biased_class=biased_class, edit=edit)
    return compute_scores(judge_head(cut, state, pairs, position_signs=signs))
